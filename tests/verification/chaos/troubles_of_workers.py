"""Scenarios of workers that die, sleep, or come back on a disk that is not the one they left. On any log."""

from collections.abc import Callable
from pathlib import Path

from grete.errors import ExitCode
from grete.protocol.ids import TopicPartition
from tests.verification.chaos.chain import PARTITIONS
from tests.verification.chaos.scene import Failed, Scene, scene
from tests.verification.chaos.worker import POINTS

ROUNDS = 4


def flushed_store(directory: Path, log: str, seed: int, rounds: int = ROUNDS) -> str:
    """Kill right after RocksDB wrote an SST file while a checkpoint is open: the same disk must give right counts.

    A store that holds what is not committed is wrong from here on: it has that work, and does it again.
    """
    with scene(directory, log, seed) as stage:
        points = [point for point in POINTS if "flushed" in point]
        stage.running()
        stage.flow(200)
        for number in range(rounds * len(points)):
            partition, point = number % PARTITIONS, points[number % len(points)]
            stage.kill(partition, hold=True)
            stage.crew.start(partition, point, countdown=2)
            stage.feeding_until(lambda n=number, p=point: stage.campaign.tally.points[p] > n // len(points), point)  # type: ignore[misc]  # mypy gives a default no type
            files = list(stage.crew.state(partition).rglob("*.sst"))
            stage.back(partition)
            stage.running()
            if stage.restored(partition):
                raise Failed(f"worker {partition} did not trust its own disk")
            if not files:
                raise Failed(f"worker {partition} left no SST file")
        stage.drained()
        stage.judge()
        return f"{rounds * len(points)} kills right after a flush, each redone from its own disk: all counts right"


def zombie(directory: Path, log: str, seed: int, rounds: int = ROUNDS) -> str:
    """Freeze a worker in mid checkpoint, let a successor commit, wake it: it must give way (C2, C5)."""
    with scene(directory, log, seed) as stage:
        stage.running()
        stage.flow(200)
        codes = []
        for partition in range(min(rounds, PARTITIONS)):
            stage.leave_open()
            member = stage.crew.freeze(partition)
            while stage.crew.phase(member) not in ("running", "committing") or stage.campaign.locked():
                stage.crew.unfreeze(member)
                stage.until(lambda p=partition: stage.crew.running(p), "runs again")  # type: ignore[misc]  # as above
                member = stage.crew.freeze(partition)
            stage.crew.start(partition)
            stage.running()
            stage.drained()
            stage.campaign.feed(100)
            stage.crew.wake(member)
            codes.append(stage.ends(partition, ExitCode.FENCED))
        stage.drained()
        stage.judge()
        return f"{len(codes)} workers frozen, succeeded and woken: they ended with codes {codes} and wrote nothing"


def older_state(directory: Path, log: str, seed: int, rounds: int = ROUNDS) -> str:
    """Bring the state directory of an older commit back.

    The changelog position tells its age, and the missing commits are redone (R1).
    """
    with scene(directory, log, seed, "changelog_retention_ms=3000") as stage:
        stage.running()
        stage.flow(200)
        restores = 0
        for number in range(rounds):
            partition = number % PARTITIONS
            stage.kill(partition, hold=True)
            stage.crew.keep(partition)
            ends = {p: stage.outside.log.bounds(p)[1] for p in stage.changelogs(partition)}
            stage.back(partition)
            stage.running()
            stage.flow(60)
            if number % 2:  # until the old commit is trimmed
                while any(stage.outside.log.bounds(p)[0] <= end for p, end in ends.items()):
                    stage.flow(60)
            stage.leave_open()
            stage.kill(partition, hold=True)
            stage.crew.bring_back(partition)
            stage.back(partition)
            stage.running()
            restores += stage.restored(partition)
        stage.drained()
        stage.judge()
        redos = rounds * len(stage.crew.job.stages) - restores
        return (
            f"{rounds} old states brought back: {redos} tasks redid what was missing, {restores} restored from the log"
        )


def trimmed_changelog(directory: Path, log: str, seed: int, rounds: int = 1) -> str:  # one is enough
    """Trim a changelog while its worker is down.

    A trim of what a restore can do without is no loss; beyond that, the worker must refuse.
    """
    with scene(directory, log, seed) as stage:
        stage.running()
        changelogs = stage.changelogs(0)
        stage.feeding_until(lambda: all(_last_base(stage, each) > 0 for each in changelogs), "a whole round each")
        stage.drained()
        stage.kill(0, hold=True)
        for changelog in changelogs:
            _trim(stage, changelog, _last_base(stage, changelog))
        stage.crew.wipe(0)
        stage.back(0)
        stage.running()
        stage.flow(200)
        stage.kill(1, hold=True)
        stage.crew.wipe(1)
        for changelog in stage.changelogs(1):
            _trim(stage, changelog, stage.outside.log.bounds(changelog)[1])
        ends = stage.campaign.may_end_with = {ExitCode.FENCED, ExitCode.HALTED}
        stage.back(1)
        stage.until(lambda: any(d.partition == 1 and d.code in ends for d in stage.campaign.deaths), "ends")
        stage.check_outputs()
        return f"restored from the last round; with everything trimmed it refused: {stage.crew.last_words(1)[:160]}"


def _last_base(stage: Scene, changelog: TopicPartition) -> int:
    """Return the offset at which the last complete round of the rewrite begins (K2); 0 while there is none."""
    from grete.state.read.checkpoints.commits import last_commit

    last = last_commit(stage.outside.log, changelog)
    return 0 if last is None else last.commit.base


def _trim(stage: Scene, partition: TopicPartition, before: int) -> None:
    stage.outside.log.trim(partition, before)
    stage.outside.log.poll()
    stage.until(lambda: stage.outside.log.bounds(partition)[0] >= before, "trimmed")


SCENARIOS: dict[str, Callable[..., str]] = {  # (directory, log, seed[, rounds])
    "flushed-store": flushed_store,
    "zombie": zombie,
    "older-state": older_state,
    "trimmed-changelog": trimmed_changelog,
}
