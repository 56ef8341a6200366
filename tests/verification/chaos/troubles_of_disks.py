"""Scenarios of disks: full, or with damaged files. On the embedded log, which is a file itself."""

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from grete.errors import ExitCode
from tests.verification.chaos.chain import PARTITIONS
from tests.verification.chaos.scene import Failed, Scene, scene

STATE_MIB, LOG_MIB = 24, 48
DAMAGES = 4
LIMIT_BYTES, CRASHES = 8192, 3


def can_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.suppress(Failed), small_disk(Path(scratch) / "disk", 1):
        return True
    return False


@contextlib.contextmanager
def small_disk(directory: Path, mib: int) -> Iterator[Path]:
    """Mount a tmpfs of that many MiB. Raises Failed where that is not permitted."""
    directory.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failed(f"no tmpfs can be mounted here ({done.stderr.strip()}): run it as root")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk to the last byte; return the file that does it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return ballast


def full_state_disk(directory: Path, seed: int) -> str:
    """No room for the state: the worker crashes (code 1) and says why; with room again it goes on where it was."""
    with small_disk(directory / "disk", STATE_MIB) as disk, scene(directory / "job", "embedded", seed) as stage:
        stage.crew.move_state(0, disk / "state")
        stage.running()
        stage.flow(200)
        crashes = _fill_until_crashes(stage, disk, {0})
        stage.drained()
        stage.judge()
        return f"{crashes} crashes of the worker without room; then all came out"


def full_log_disk(directory: Path, seed: int) -> str:
    """No room for the log: workers crash (code 1); with room again all goes on, and nothing is lost or doubled."""
    with small_disk(directory / "disk", LOG_MIB) as disk, scene(disk / "job", "embedded", seed) as stage:
        for partition in range(PARTITIONS):
            stage.crew.move_state(partition, directory / f"state-{partition}")
        stage.running()
        stage.flow(200)
        crashes = _fill_until_crashes(stage, disk, set(range(PARTITIONS)))
        stage.drained()
        stage.judge()
        return f"{crashes} crashes of workers whose log had no room; then all came out"


def limited_files(directory: Path, seed: int) -> str:
    """No file may grow (RLIMIT_FSIZE), neither log nor state: the same must come of it as of a full disk.

    Where no tmpfs can be mounted this takes the place of the full disks.
    """
    with scene(directory, "embedded", seed) as stage:
        stage.running()
        stage.flow(200)
        stage.kill(0, hold=True)
        stage.crew.file_bytes_max = LIMIT_BYTES
        stage.campaign.feed(100)
        for _ in range(CRASHES):
            stage.crew.start(0)
            stage.ends(0, ExitCode.FAILED)
        stage.crew.file_bytes_max = None
        stage.back(0)
        stage.drained()
        stage.judge()
        return f"{CRASHES} crashes of a worker that could not write; then all came out"


def _fill_until_crashes(stage: Scene, disk: Path, whose: set[int]) -> int:
    """Fill the disk, give inputs until a worker has crashed of it (RocksDB reserves room ahead), make room."""
    stage.campaign.feed(100)
    ballast = fill(disk)
    stage.feeding_until(lambda: any(_ran_out(stage, death.partition) for death in stage.campaign.deaths), "crashes")
    ballast.unlink()
    stage.running()
    crashed = [death for death in stage.campaign.deaths if death.code == ExitCode.FAILED]
    if {death.partition for death in crashed} - whose:
        raise Failed(f"others crashed, too: {crashed}")
    return len(crashed)


def _ran_out(stage: Scene, partition: int) -> bool:
    return any(words in stage.crew.last_words(partition) for words in ("No space left", "disk is full", "full"))


def damaged_state(directory: Path, seed: int) -> str:
    """Flip bits in a dead worker's store: it is noticed and restored from the changelog, or does not matter."""
    rng = random.Random(seed)
    with scene(directory, "embedded", seed) as stage:
        stage.running()
        stage.flow(400)
        wiped = 0
        for number in range(DAMAGES):
            partition = number % PARTITIONS
            stage.kill(partition, hold=True)
            for task in sorted(stage.crew.state(partition).glob("*-?")):
                files = [file for file in sorted(task.iterdir()) if file.stat().st_size and file.name not in _NO_DATA]
                flip(rng.choice(files), rng)
            stage.back(partition)
            stage.running()
            wiped += stage.restored(partition)
            stage.flow(60)
        stage.drained()
        stage.judge()
        return f"{2 * DAMAGES} stores damaged: {wiped} were restored from their changelogs, all counts right"


_NO_DATA = {"LOCK", "LOG", "lock", "IDENTITY"}


def damaged_log(directory: Path, seed: int) -> str:
    """Flip a bit in the log's file: who reads it must halt and say so, or no reader needs it: never wrong output."""
    rng = random.Random(seed)
    with scene(directory / "whole", "embedded", seed) as stage:
        stage.running()
        stage.flow(400)
        stage.crew.stop()
        fed, numbers = stage.campaign.fed, list(stage.campaign.numbers)
    (directory / "whole" / "log.db-wal").unlink(missing_ok=True)
    noticed = 0
    for number in range(DAMAGES):
        copy = directory / f"damaged-{number}"
        shutil.copytree(directory / "whole", copy)
        flip(copy / "log.db", rng)
        noticed += _runs_or_halts(copy, seed, fed, numbers)
    return (
        f"{DAMAGES} bits flipped in log.db: {noticed} noticed, {DAMAGES - noticed} where no read goes; no wrong output"
    )


def _runs_or_halts(directory: Path, seed: int, fed: int, numbers: list[int]) -> bool:
    """Go on with a damaged log; return whether the damage was noticed."""
    from grete.errors import FrameworkError

    try:
        with scene(directory, "embedded", seed) as stage:
            stage.campaign.fed, stage.campaign.numbers = fed, numbers
            stage.campaign.may_end_with = {ExitCode.HALTED}
            stage.campaign.feed(100)
            stage.until(
                lambda: bool(stage.campaign.held) or stage.campaign.checker.entries >= stage.campaign.fed,
                "ends or goes on",
            )
            stage.check_outputs()
            return bool(stage.campaign.held)
    except FrameworkError:  # this process reads the log, too
        return True


def flip(path: Path, rng: random.Random) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        at = rng.randrange(os.fstat(file.fileno()).st_size)
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


SCENARIOS: dict[str, Callable[[Path, int], str]] = {
    "full-state-disk": full_state_disk,
    "full-log-disk": full_log_disk,
    "limited-files": limited_files,
    "damaged-state": damaged_state,
    "damaged-log": damaged_log,
}
