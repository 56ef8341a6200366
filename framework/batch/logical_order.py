"""The logical times of a source's records in batch: those that its live tasks have given them, or those of history.

A live source decides when it takes a record in, and logs that (D2). History was never taken in. So its records are
taken as if each had come at its timestamp: their logical times are the highest timestamp that its partition has
reached, and end with the checkpoint of the backfill, before which nothing live is. An audit gives them the same times,
and all others those of the input decisions.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from grete.batch.record_order import Piece, cut_at
from grete.core.deterministic.logical_watermarks import NEVER
from grete.errors import ConfigError
from grete.execution.task_code.record_times import part_of
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallResult, IdleNote
from grete.protocol.record_batch import RecordBatch
from grete.state.read.recorded_task import RecordedTask


class LogicalOrder(NamedTuple):
    """The recorded logical times of one task.

    ``until_us``: the last one of history; below 0: there was none. ``taken``: by external partition, the offset of the
    first record that live tasks took; absent: they took none. ``decisions``: of live tasks, in order. ``frontiers``: by
    channel (producer, partition), up to when a live task has taken watermarks. ``is_live``: the order is all that a
    live task has recorded up to a commit. ``calls``: what the calls of its records have returned, by their numbers.
    """

    until_us: int = NEVER - 1
    taken: Mapping[TopicPartition, int] = {}
    decisions: Sequence[InputDecision | IdleNote] = ()
    frontiers: Mapping[tuple[int, TopicPartition], int] = {}
    is_live: bool = False
    calls: Mapping[int, Sequence[CallResult]] = {}

    @property
    def told_us(self) -> int:
        """The time up to which all that is due is told of event time: consumers have what was told later, or not."""
        return NEVER - 1 if self.is_live else self.until_us

    def of(
        self, source: TopicPartition, producer: int, history: Iterable[Piece], pieces: Iterable[Piece], *, first: bool
    ) -> Iterator[Piece]:
        """Give the pieces of one external partition their logical times; those of live records are their decisions.

        ``producer``: the task. ``history``: what comes before the log's records, and has no offsets of it. ``first``:
        the history of this input comes before that of others (A2c). Raises ConfigError if records that were taken are
        not there.
        """
        begin, reached = self.taken.get(source, NEVER), 0
        decisions = deque(d for d in self.decisions if isinstance(d, InputDecision) and (d[0], d[1]) == source)
        waiting: list[RecordBatch] = []
        for piece, count in chain(((each, len(each.batch.keys)) for each in history), cut_at(pieces, begin)):
            if count:
                batch = part_of(piece.batch, 0, count)
                times = [reached := max(reached, self._time_of(at, first=first)) for at in batch.timestamps]
                yield piece._replace(start=times[0], batch=_at(batch, times, producer))
            rest = part_of(piece.batch, count, len(piece.batch.keys))
            while rest.keys:
                if not decisions:
                    raise _other_records(source, f"offset {rest.offset_at(0):,} and later are in no decision")
                room = decisions[0].records - sum(len(each.keys) for each in waiting)
                waiting.append(part_of(rest, 0, room))
                rest = part_of(rest, room, len(rest.keys))
                if len(waiting[-1].keys) == room:
                    yield _decided(piece, decisions.popleft(), waiting, producer)
                    waiting.clear()
        if decisions:
            raise _other_records(
                source, f"of {decisions[0].records:,} records from offset {decisions[0][2]:,} on some are gone"
            )

    def idle(self, channels: Mapping[TopicPartition, int]) -> Iterator[Piece]:
        """Yield the idle inputs that live tasks have noted, as pieces; ``channels``: of the external partitions."""
        for note in self.decisions:
            if isinstance(note, IdleNote):
                source = TopicPartition(note.topic, note.partition)
                nothing = RecordBatch((), (), (), logical=((note.t,), (0,)), source=source)
                yield Piece(note.t, channels[source], 0, nothing, ended=note.ended)

    def _time_of(self, timestamp: int, *, first: bool) -> int:
        return 0 if first else min(self.until_us, 1_000 * timestamp)


def recorded_order(recorded: RecordedTask, last: Commit) -> LogicalOrder:
    """Return the order that a live task has recorded, up to a commit, behind a backfill if there was one."""
    first = recorded.commits[0]
    assert last.deterministic is not None
    upto, built = last.deterministic.last_t, first.bulk_write_id is not None
    return LogicalOrder(
        first.checkpoint_id * 1_000 if built else -1,
        {TopicPartition(e.topic, e.partition): e.offset if built else 0 for e in first.external},
        [decision for decision in recorded.decisions if decision.last_t <= upto],
        {(f.producer, TopicPartition(f.topic, f.partition)): f.t for f in last.deterministic.frontiers},
        is_live=True,
        calls={number: results for note in recorded.calls for number, results in note.records},
    )


def _at(batch: RecordBatch, times: Sequence[int], producer: int) -> RecordBatch:
    return batch._replace(logical=(times, (producer,) * len(times)))


def _decided(piece: Piece, decision: InputDecision, parts: Sequence[RecordBatch], producer: int) -> Piece:
    """Return the piece with the rows of a decision. Raises ConfigError if that began with another row."""
    source, first_t = parts[0].source, decision.first_t
    if parts[0].offset_at(0) != decision.first_offset:
        raise _other_records(source, f"offset {decision.first_offset:,} is gone")
    keys = [*chain.from_iterable(part.keys for part in parts)]
    values = [*chain.from_iterable(part.values for part in parts)]
    stamps = [*chain.from_iterable(part.timestamps for part in parts)]
    cells = [*chain.from_iterable(part.headers or [None] * len(part.keys) for part in parts)]
    offsets = [part.offset_at(i) for part in parts for i in range(len(part.keys))]
    batch = RecordBatch(keys, values, stamps, cells if any(cells) else None, source=source, offset=offsets)
    timed = _at(batch, range(first_t, first_t + len(keys)), producer)
    return piece._replace(start=first_t, batch=timed, until=decision.last_t)


def _other_records(source: TopicPartition, what: str) -> ConfigError:
    return ConfigError(
        f"{source} does not have the records that the job has taken in: {what}, by the task's changelog. Give the "
        "records as they were: --from with an archive of the topic that has partitions and offsets",
        partition=source,
    )
