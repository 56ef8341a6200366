"""What a worker says of a task: its status for the supervisor, and the log line when it takes input."""

import logging

from grete.execution.driver import TaskDriver
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.worker.measures import task_measures

ReadUpTo = list[list[int]] | None  # of a task: offsets in external inputs, and in streams; None: no commit is known
ENDED = ("fenced", "halted", "ended")  # the status of a task that is not there; "ended": it will start again

logger = logging.getLogger("grete")


def task_status(driver: TaskDriver) -> dict[str, object]:
    """Return what a supervisor shows of a task: plain values."""
    core, committed, pending = driver.core, driver.core.commits.committed, driver.core.commits.pending
    channels = channels_of(driver)
    rests = driver.running and driver.mode.observed_checkpoint is not None and channels[0] == 0
    return {
        "status": driver.status.name.lower(),
        "generation": core.generation,
        "checkpoint_id": -1
        if committed is None
        else core.idleness.closed(committed.checkpoint_id),  # or left out since
        "covered_t": core.covered_t,
        "positions": _positions(committed),
        "read_up_to": read_up_to(committed),
        "lag_from": {str(partition): offset for partition, offset in lag_from(driver).items()},
        "began": _positions(core.commits.began),  # in this life of the task
        "holes": {}
        if committed is None
        else {
            str(partition): count for partition, count in driver.parts.holes.committed(committed.checkpoint_id).items()
        },
        "restore": list(driver.restore.progress),
        "counters": dict(driver.counters),
        "seen": dict(core.seen),
        "dropped": driver.parts.runner.dropped,
        "last_failure": driver.parts.runner.last_failure,
        "idle_in": driver.idle_in,
        "ended_in": driver.ended_in,
        "timers": driver.parts.runner.waiting_timers,
        "wall_timers": 0 if driver.parts.runner.wall is None else driver.parts.runner.wall.waiting,
        "commit": None if pending is None else [pending.checkpoint_id, pending.step.name.lower()],
        "rests_ms": int(driver.parts.wall_ms) if rests else None,  # when it had nothing that is not committed
        "channels": channels,
        "settled": driver.mode.settled and (driver.outbox is None or driver.outbox.settled),
        "sink_trouble": None if driver.outbox is None else driver.outbox.trouble,
        "measures": task_measures(driver),
    }


def read_up_to(commit: Commit | None) -> ReadUpTo:
    """Return from where a commit reads on: one that has read nothing more than the one before it is no progress."""
    if commit is None:
        return None
    return [[entry.offset for entry in commit.external], [entry.resume for entry in commit.inputs]]


def moved(before: ReadUpTo, now: ReadUpTo) -> bool:
    """Whether something was read between two commits. The first one of all has read nothing."""
    return before is not None and now is not None and before != now


def _positions(commit: Commit | None) -> dict[str, int]:
    """Return how far a commit has the external inputs."""
    return {str(TopicPartition(e.topic, e.partition)): e.offset for e in (() if commit is None else commit.external)}


def lag_from(driver: TaskDriver) -> dict[TopicPartition, int]:
    """Return up to where nothing is left of the external inputs: how far they are committed, or more.

    Behind that, transactions of producers may have ended, or been taken back: offsets of Kafka's, and no records.
    """
    skipped = getattr(driver.parts.log, "skipped", lambda _partition, offset: offset)  # other logs have no such offsets
    commit = driver.core.commits.committed
    places = {TopicPartition(e.topic, e.partition): e.offset for e in (() if commit is None else commit.external)}
    return {partition: skipped(partition, offset) for partition, offset in places.items()}


def channels_of(driver: TaskDriver) -> list[int]:
    """Return how many channels have reached what the task waits for, and how many there are."""
    reached = driver.core.reached_t
    times = [t for _, t in driver.core.inputs.reached_by_channel()]
    return [sum(t > reached for t in times), len(times)]


def log_ready(driver: TaskDriver) -> None:
    """Log that a task takes input: from where on, and how many records were restored until then."""
    commit = driver.core.commits.committed
    logger.info(
        "ready",
        extra={
            "restored": driver.counters["restored records"],
            "checkpoint_id": -1 if commit is None else commit.checkpoint_id,
            "position": _positions(commit),
        },
    )
