"""Makes the stored directories with the code of an earlier commit.

    git worktree add --detach ../before dccb5a1
    python tests/upgrade/make_stored.py ../before tests/upgrade/stored.tar.xz

A commit before 0.4.0 has the modules `framework` and `protocol`, and this script is taken as it was at 8c49a178.

Each kind of job is stopped gracefully after its first lines, and then killed while the next ones are not committed. An
aligned one is also killed when they are committed, but its database has not taken them.
The options are those of release 0.1.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of

HERE = Path(__file__).parent.absolute()
PARTITIONS = 2
FIRST = [(f"k{i % 5}", f"w{i % 7} w{i % 3}") for i in range(30)]
SECOND = [(f"k{i % 5}", f"w{i % 7} x{i % 3}") for i in range(20)]
WORDS = "upgraded.split.words.count"  # the stream between the stages
KINDS = {  # directory → code, options of release 0.1
    "aligned": ("aligned.py", []),
    "at-least-once": ("aligned.py", ["--set=guarantee=at-least-once"]),
    "transaction": ("deterministic.py", []),
    "read-back": ("deterministic.py", ["--set=release=read-back"]),
}
DROPPED = ("LOG*", "OPTIONS-*", "*.lock", "LOCK", "*.early", "logs", "*.db-queue", "*.db-lock", "*-shm", "*.py", "__*")
LIMIT_S = 60.0

held: list[EmbeddedLog] = []  # never closed: closing would empty the WAL that the killed workers leave


def make(out: Path) -> None:
    """Make all directories. This runs with the modules of the earlier commit."""
    for kind, (code, options) in KINDS.items():
        stopped = out / kind / "stopped"
        stopped.mkdir(parents=True)
        shutil.copy(HERE / code, stopped)
        rows = sqlite3.connect(stopped / "rows.db")
        rows.execute("CREATE TABLE totals (word TEXT NOT NULL, total INTEGER NOT NULL)")
        rows.close()
        grete(stopped, "run", code, f"--lines=lines={os.devnull}", *options)  # makes the topics
        feed(stopped, FIRST, at=1_000)
        grete(stopped, "run", code, *options)
        killed = out / kind / "killed"
        shutil.copytree(stopped, killed)
        feed(killed, SECOND, at=100_000)
        kill(killed, code, "--set=interval_ms=600000", *options)
    unapplied = out / "aligned" / "unapplied"
    shutil.copytree(out / "aligned" / "stopped", unapplied)
    kill(unapplied, "aligned.py", unapplied=True)


def grete(folder: Path, *arguments: str) -> None:
    """Run a command to its good end."""
    command = [sys.executable, "-m", "grete.cli", *arguments, "--directory=job"]
    subprocess.run(command, cwd=folder, check=True, timeout=LIMIT_S)


def feed(folder: Path, lines: list[tuple[str, str]], *, at: int) -> None:
    """Append lines with timestamps (ms) from ``at`` on."""
    log = EmbeddedLog(folder / "job" / "log.db")
    records = []
    for number, (key, value) in enumerate(lines):
        partition = TopicPartition("lines", partition_of(key.encode(), PARTITIONS))
        records.append(ExternalRecord(partition, key.encode(), value.encode(), at + number))
    log.produce_with_meta(records, {})
    log.close()


def kill(folder: Path, code: str, *options: str, unapplied: bool = False) -> None:
    """Run the workers until their frames are in the log, and kill them; ``unapplied``: the outputs, but no rows."""
    command = [sys.executable, "-m", "grete.cli", "worker", code, "--directory=job"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # as the supervisor starts deterministic workers
    log = EmbeddedLog(folder / "job" / "log.db")
    held.append(log)
    before = work(log)
    workers = [
        subprocess.Popen([*command, f"--partition={number}", *options], cwd=folder, env=environment)
        for number in range(PARTITIONS)
    ]
    try:
        if unapplied:
            time.sleep(5)  # the workers open their sinks
            rows = sqlite3.connect(folder / "rows.db", isolation_level=None)
            rows.execute("BEGIN IMMEDIATE")
            feed(folder, SECOND, at=100_000)
        looked = slice(PARTITIONS, None) if unapplied else slice(PARTITIONS)
        still, ends, ends_at = 0, before, time.monotonic() + LIMIT_S
        while still < 10 or any(end == start for end, start in zip(ends[looked], before[looked], strict=True)):
            time.sleep(0.2)
            now = work(log)
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{folder}: {before} → {now}")
            markers = unapplied or "deterministic" in code  # they go on, or progress messages do
            still = still + 1 if now == ends or markers else 0
            ends = now
            assert all(worker.poll() is None for worker in workers), "a worker has ended"
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
    sys.stdout.write(f"{folder}: {before} → {ends}\n")


def work(log: EmbeddedLog) -> list[int]:
    """Return the ends of what the stages write."""
    return [log.bounds(TopicPartition(t, number))[1] for t in (WORDS, "totals") for number in range(PARTITIONS)]


def pack(directory: Path, archive: Path, dropped: Sequence[str]) -> None:
    """Pack what is below a directory, without the files and folders of these patterns."""
    for pattern in dropped:
        for path in [*directory.rglob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        for path in sorted(directory.rglob("*")):
            packed.add(path, path.relative_to(directory), recursive=False)


def main(checkout: Path, archive: Path) -> None:
    """Make the directories in a process with the modules of ``checkout``, and pack them."""
    with tempfile.TemporaryDirectory() as folder:
        out, shim = Path(folder) / "out", Path(folder) / "shim"
        shim.mkdir()
        (shim / "grete.py").write_text("from framework import *\n")  # the public API of release 0.1
        environment = {**os.environ, "PYTHONPATH": f"{checkout.absolute()}:{shim}"}
        subprocess.run([sys.executable, __file__, "--make", str(out)], env=environment, check=True)
        pack(out, archive, DROPPED)


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(Path(sys.argv[2]))
        sys.stdout.flush()
        os._exit(0)
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
