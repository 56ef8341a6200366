"""Reads a task's inputs from where the core says (R5): in turn, external ones in the order of time."""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from grete.errors import Halted, TransientError
from grete.execution.limits import GIVE_WAY_ROWS
from grete.halts import HaltCode
from grete.ports import Log, LogRow
from grete.protocol.ids import TopicPartition

TimeOfRow = Callable[[LogRow], int]  # ms; it never raises


class InputReader:
    """Input partitions with their positions. A seek drops what was read ahead, so nothing stale can follow it.

    Of the ``ordered`` partitions it holds at most a batch each, and gives the rows of the one whose next timestamp is
    the least, up to where another one's is, unless ``apart`` tells of the two that they have no order between them. One
    that has nothing to read holds back no other. One of a higher priority comes before all that have a lower one, and
    what comes to it interrupts them.
    """

    def __init__(
        self,
        log: Log,
        partitions: Sequence[TopicPartition],
        batch_bytes_max: int,
        *,
        ordered: Sequence[TopicPartition] = (),
        times: Mapping[str, TimeOfRow] = MappingProxyType({}),
        priorities: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Read the partitions from where they are sought.

        ``times``: by topic, the time of a row that is to be ordered by another than its timestamp. ``priorities``: by
        topic, of the ``ordered`` ones; 0 where it is not in there.
        """
        self._log = log
        self._batch_bytes_max = batch_bytes_max
        self._ordered = tuple(ordered) if len(ordered) > 1 else ()
        self._turn: list[TopicPartition | None] = [p for p in partitions if p not in self._ordered]
        if self._ordered:
            self._turn.append(None)  # all of them take one turn
        self._position: dict[TopicPartition, int] = {}
        self._times = times
        self.apart: Callable[[TopicPartition, TopicPartition], bool] = lambda _read, _other: False
        self._priority = {partition: priorities.get(partition.topic, 0) for partition in self._ordered}
        self._highest = max(self._priority.values(), default=0)
        # rows, their times, the first that was not given
        self._held: dict[TopicPartition, tuple[list[LogRow], list[int], int]] = {}
        self.more = False  # the last batch was cut: the rest of it is here
        self.waits = False  # the log still fetches what is behind a seek

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from ``offset`` on next. Raises Halted if the log ends before it."""
        end = self._log.bounds(partition)[1]
        if offset > end:
            raise Halted(
                f"reading {partition} goes on at offset {offset}, but it ends at {end}: the topic was truncated or "
                "recreated: restore it, or start the job under another name",
                partition=partition,
                offset=offset,
                code=HaltCode.LOG_WENT_BACK,
            )
        self._log.expect({partition: (offset, end)})
        self._position[partition] = offset
        self._held.pop(partition, None)
        self.more = False

    def leave(self, partitions: Collection[TopicPartition]) -> None:
        """Read no more of these partitions."""
        gone = set(partitions)
        self._ordered = tuple(each for each in self._ordered if each not in gone)
        self._turn = [each for each in self._turn if each not in gone and (each is not None or self._ordered)]
        for partition in gone:
            self._held.pop(partition, None)
        self.more = False

    def next_batch(self, first: Collection[TopicPartition] = ()) -> tuple[TopicPartition, list[LogRow]] | None:
        """Return the next batch of the partition whose turn it is, or of the first after it that has one.

        ``first``: the only partitions to be read now (A2c); none: all are.
        """
        self.more = self.waits = False
        for _ in range(len(self._turn)):
            partition = self._turn.pop(0)
            self._turn.append(partition)
            if partition is None:
                batch = self._next_in_order(first)
                if batch is not None:
                    return batch
                continue
            if first and partition not in first:
                continue
            if not self._log.at_hand(partition, self._position[partition]):
                self.waits = True
                continue
            rows = self._log.read(partition, self._position[partition], self._batch_bytes_max)
            if rows:
                self._position[partition] = rows[-1].offset + 1
                return partition, rows
        return None

    def _next_in_order(self, first: Collection[TopicPartition]) -> tuple[TopicPartition, list[LogRow]] | None:
        """Return the rows that come before those of every other partition, by their priorities and timestamps."""
        held, heads = self._held, []
        for partition in self._ordered:
            if first and partition not in first:
                continue
            if partition not in held:
                rows = self._log.read(partition, self._position[partition], self._batch_bytes_max)
                if not rows:
                    continue
                time_of = self._times.get(partition.topic)
                times = [row.timestamp_ms for row in rows] if time_of is None else [time_of(row) for row in rows]
                held[partition] = rows, times, 0
            _, times, start = held[partition]
            heads.append((-self._priority[partition], times[start], partition))
        if not heads:
            return None
        heads.sort(key=lambda head: head[:2])
        partition = heads[0][2]
        rows, times, start = held.pop(partition)
        stop = len(rows)
        if self._priority[partition] < self._highest:
            stop = min(stop, start + GIVE_WAY_ROWS)
        others = [head for head in heads[1:] if head[0] == heads[0][0] and not self.apart(partition, head[2])]
        if others:
            bound = others[0][1]
            stop = next((i for i in range(start, stop) if times[i] > bound), stop)
        self._position[partition] = rows[stop - 1].offset + 1
        if stop < len(rows):
            held[partition], self.more = (rows, times, stop), True
        return partition, rows if stop - start == len(rows) else rows[start:stop]

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns of a task."""
        assert len(self._turn) == len({*self._turn}), f"an input has two turns: {self._turn}"
        assert self._held or not self.more, "the rest of a batch is said to be here"
        for partition, (rows, times, start) in self._held.items():
            assert partition in self._ordered, f"{partition}: rows are held of an input without an order"
            assert start < len(rows) == len(times), f"{partition}: {start} of {len(rows)} rows were given"
            assert self._position[partition] <= rows[start].offset, f"{partition}: a row would be passed over"

    def position(self, partition: TopicPartition) -> int:
        """Return the offset up to which a partition was read."""
        return self._position[partition]

    def drained(self, partition: TopicPartition) -> bool:
        """Tell whether the task has read all that the log has now. It has not before it knows its first position."""
        position = self._position.get(partition)
        return position is not None and position >= self._log.bounds(partition)[1]

    def where(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return the position in a partition and its end; None if rows of it are held, or the log does not answer."""
        if partition in self._held:
            return None
        try:
            return self._position[partition], self._log.bounds(partition)[1]
        except TransientError:
            return None
