"""Common checkpoints of several tasks, and the ones nearest to a checkpoint that they lack."""

from datetime import UTC, datetime, timedelta

from grete.api.jobs.job import Job
from grete.clock_text import clock_text, time_of
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commit_search import at_most, first_from, last_at_most

_EPOCH = datetime.fromtimestamp(0, UTC)

AsOf = int | datetime  # a checkpoint, or the newest one up to a time of the log: checkpoints are numbered by it (A1)


def as_of(text: str) -> AsOf:
    """Return the checkpoint that an option names, or the time. Raises ValueError."""
    try:
        return int(text) if text.isdecimal() else time_of(text)
    except ValueError as error:
        raise ValueError(f"a checkpoint is a number, as grete checkpoints shows it, or a time: {error}") from error


def up_to(
    log: LogReader, wirings: list[TaskWiring], inner: list[TaskWiring], time: datetime, newest: int | None
) -> int:
    """Return the highest checkpoint up to a time that each of the ``inner`` tasks, or one of these tasks, has.

    ``newest``: the last one that all sources have, behind which nothing tells what a checkpoint holds; None: no task
    reads of one. Raises ConfigError if there is none any more.
    """
    time_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    before = _nearest_before(log, wirings, time_ms if newest is None else min(time_ms, newest), by_all=False)
    if before is None:
        first = _nearest_after(log, wirings, time_ms, by_all=False)
        raise ConfigError(
            f"no checkpoint up to {time.isoformat()} is retained: the first one is {first}, of "
            f"{clock_text(first or 0, utc=True)} UTC"
        )
    return common(log, wirings, inner, before) if inner else before


def common(log: LogReader, wirings: list[TaskWiring], inner: list[TaskWiring], checkpoint_id: int) -> int:
    """Return the highest checkpoint up to ``checkpoint_id`` that each of the ``inner`` tasks of a job has."""
    while True:
        late = [wiring for wiring in inner if not has(log, wirings, wiring, checkpoint_id)]
        if not late:
            return checkpoint_id
        checkpoint_id = min(at_most(log, wiring, checkpoint_id).commit.checkpoint_id for wiring in late)


def has(log: LogReader, wirings: list[TaskWiring], wiring: TaskWiring, checkpoint_id: int) -> bool:
    """Tell whether the last commit of a task up to a checkpoint holds what the checkpoint holds.

    It is the commit of that checkpoint, or the task has left it out, as it had nothing new: all that its producers had
    sent up to the checkpoint is in the commit before.
    """
    found = last_at_most(log, wiring, checkpoint_id)
    if found is None or found.commit.checkpoint_id == checkpoint_id:
        return found is not None
    producers = {each.producer: each for each in wirings}
    taken = {(c.producer, TopicPartition(i.topic, i.partition)): c.seq for i in found.commit.inputs for c in i.channels}
    return all(
        taken[producer, partition] == _sent(log, producers[producer], partition, checkpoint_id)
        for producer, partition in wiring.channels
        if producer not in wiring.logical
    )


def _sent(log: LogReader, wiring: TaskWiring, partition: TopicPartition, checkpoint_id: int) -> int | None:
    """Return the last seq of a task in a partition, as of a checkpoint; None: it has not come so far."""
    find = first_from if wiring.is_source else last_at_most
    found = find(log, wiring, checkpoint_id)
    outputs = () if found is None else found.commit.outputs
    return next((o.next_seq - 1 for o in outputs if (o.topic, o.partition) == partition), None)


def check_known(log: LogReader, job: Job, wirings: list[TaskWiring], checkpoint_id: int, *, by_all: bool) -> None:
    """Raise ConfigError unless all of these tasks, or one of them, have committed exactly this checkpoint."""
    before = _nearest_before(log, wirings, checkpoint_id, by_all=by_all)
    if before == checkpoint_id:
        return
    first = _nearest_after(log, wirings, 0, by_all=by_all)
    newest_of_all = max(at_most(log, wiring, None).commit.checkpoint_id for wiring in wirings)
    last = _nearest_before(log, wirings, newest_of_all, by_all=by_all)
    if first is None or last is None:
        near = "there is no checkpoint that was; it began later, or it is not retained any more"
    elif before is None:
        near = f"it began later, or it is not retained any more; the first that was is {first}, the last {last}"
    else:
        after = _nearest_after(log, wirings, checkpoint_id, by_all=by_all)
        near = (
            f"nearest committed: {before}{'' if after is None else f' and {after}'}; the first {first}, the last {last}"
        )
    who = "every task" if by_all else "a task"
    raise ConfigError(
        f"checkpoint {checkpoint_id} was not committed by {who} of job {job.name!r}: {near}",
        checkpoint_id=checkpoint_id,
    )


def _nearest_before(log: LogReader, wirings: list[TaskWiring], checkpoint_id: int, *, by_all: bool) -> int | None:
    """Return the highest checkpoint up to ``checkpoint_id`` that all of these tasks, or one of them, have committed."""
    while True:
        found = [last_at_most(log, wiring, checkpoint_id) for wiring in wirings]
        checkpoint_ids = {-1 if at is None else at.commit.checkpoint_id for at in found}
        nearest = min(checkpoint_ids) if by_all else max(checkpoint_ids)
        if nearest < 0:
            return None
        if not by_all or len(checkpoint_ids) == 1:
            return nearest
        checkpoint_id = nearest


def _nearest_after(log: LogReader, wirings: list[TaskWiring], checkpoint_id: int, *, by_all: bool) -> int | None:
    """Return the lowest checkpoint, not below ``checkpoint_id``, that these tasks have committed.

    ``by_all``: that all of them have; otherwise one is enough.
    """
    while True:
        found = [first_from(log, wiring, checkpoint_id) for wiring in wirings]
        checkpoint_ids = {at.commit.checkpoint_id for at in found if at is not None}
        if not checkpoint_ids or (by_all and None in found):
            return None
        if not by_all or len(checkpoint_ids) == 1:
            return min(checkpoint_ids)
        checkpoint_id = max(checkpoint_ids)
