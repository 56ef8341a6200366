"""The report of a task for its supervisor, and the log line when it takes input."""

import logging
from collections.abc import Iterable, Iterator

from grete.execution.engine.driver import TaskDriver
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.protocol.report import (
    DropCounts,
    InputPosition,
    InputReport,
    OpenCommit,
    Portion,
    ReadUpTo,
    TaskReport,
    TaskState,
)
from grete.worker.process.measures import task_measures

logger = logging.getLogger("grete")


def task_report(driver: TaskDriver) -> TaskReport:
    """Return the report of a task in this process; its worker adds the fields that the task cannot know."""
    core, committed, pending = driver.core, driver.core.commits.committed, driver.core.commits.pending
    runner, changelog, outbox = driver.parts.runner, driver.wiring.changelog, driver.parts.runner.outbox
    channels = channels_of(driver)
    unseen = driver.mode.observed_checkpoint is None or not driver.mode.closed_all
    rests = pending is None and driver.running and not unseen and channels.done == 0
    return TaskReport(
        stage=driver.wiring.stage,
        partition=changelog.partition,
        status=TaskState[driver.status.name],
        generation=core.generation,
        checkpoint_id=-1 if committed is None else core.idleness.closed(committed.checkpoint_id),  # or left out since
        covered_t=core.covered_t,
        inputs=_inputs(driver, committed),
        began=_positions(core.commits.began),
        read_up_to=read_up_to(committed),
        restore=Portion(*driver.restore.progress),
        counters=dict(driver.parts.counters + core.seen),
        rollbacks=core.seen["rollbacks"],
        dropped=DropCounts(**runner.dropped),
        last_failure=runner.last_failure,
        idle_in=driver.idle_in,
        ended_in=driver.ended_in,
        timers=runner.waiting_timers,
        wall_timers=0 if runner.wall is None else runner.wall.waiting,
        commit=None if pending is None else OpenCommit(pending.checkpoint_id, pending.step.name.lower()),
        rests_ms=int(driver.parts.io.wall_ms) if rests else None,
        channels=channels,
        settled=driver.mode.settled and (outbox is None or outbox.settled),
        sink_trouble=None if outbox is None else outbox.trouble,
        measures=task_measures(driver),
    )


def read_up_to(commit: Commit | None) -> ReadUpTo | None:
    """Return from where a commit reads on: one that has read nothing more than the one before it is no progress."""
    if commit is None:
        return None
    return tuple(entry.offset for entry in commit.external), tuple(entry.resume for entry in commit.inputs)


def moved(before: ReadUpTo | None, now: ReadUpTo | None) -> bool:
    """Whether something was read between two commits. The first one of all has read nothing."""
    return before is not None and now is not None and before != now


def _positions(commit: Commit | None) -> tuple[InputPosition, ...]:
    """Return the offsets of the external inputs in a commit."""
    return tuple(InputPosition(e.topic, e.partition, e.offset) for e in (() if commit is None else commit.external))


def _inputs(driver: TaskDriver, commit: Commit | None) -> tuple[InputReport, ...]:
    """Return the external inputs' offsets in the last commit, and the known holes in them."""
    if commit is None:
        return ()
    holes, skipped = driver.parts.inputs.holes.committed(commit.checkpoint_id), lag_from(driver)
    places = [(TopicPartition(entry.topic, entry.partition), entry.offset) for entry in commit.external]
    return tuple(
        InputReport(
            topic=place.topic,
            partition=place.partition,
            offset=offset,
            lag_from=skipped[place],
            holes=holes.get(place, 0),
        )
        for place, offset in places
    )


def lag_from(driver: TaskDriver) -> dict[TopicPartition, int]:
    """Return up to where nothing is left of the external inputs: how far they are committed, or more.

    Behind that, transactions of producers may have ended, or been taken back: offsets of Kafka's, and no records.
    """
    skipped = getattr(
        driver.parts.io.log, "skipped", lambda _partition, offset: offset
    )  # other logs have no such offsets
    commit = driver.core.commits.committed
    places = {TopicPartition(e.topic, e.partition): e.offset for e in (() if commit is None else commit.external)}
    return {partition: skipped(partition, offset) for partition, offset in places.items()}


def channels_of(driver: TaskDriver) -> Portion:
    """Return the number of channels that have reached what the task waits for, and the number of all."""
    reached = driver.core.reached_t
    times = [t for _, t in driver.core.inputs.reached_by_channel()]
    return Portion(sum(t > reached for t in times), len(times))


class ReadyLog:
    """Logs, once a generation of a task, that it takes input."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}  # task → its generation then

    def due(self, drivers: Iterable[TaskDriver]) -> Iterator[TaskDriver]:
        """Yield each task that takes input by now, and of which no line says so; the caller logs it."""
        for driver in drivers:
            if driver.running and self._said.get(driver.wiring.name) != driver.core.generation:
                self._said[driver.wiring.name] = driver.core.generation
                yield driver


def log_ready(driver: TaskDriver) -> None:
    """Log that a task takes input: from where on, and how many records were restored until then."""
    commit = driver.core.commits.committed
    logger.info(
        "ready",
        extra={
            "restored": driver.parts.counters["restored records"],
            "checkpoint_id": -1 if commit is None else commit.checkpoint_id,
            "position": {str(TopicPartition(e.topic, e.partition)): e.offset for e in _positions(commit)},
        },
    )
