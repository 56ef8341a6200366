"""The simulated log: what a process sends is queued, applied later or never, acknowledged later or never, or twice.

It keeps the port's contract (grete.ports.Log) and nothing more: order within a partition of one sender, no gap in a
queue, one delivery per send. Everything else is up to the scheduler.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import Delivery, ExternalRecord, LogRow
from grete.protocol.changelog import decode_changelog_header
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.behaviour import Behaviour
from tests.verification.simulation.sends import Plain, Queue, Sent
from tests.verification.simulation.transactions import Coordinator, SimPartition, Written


class Observer(Protocol):
    """The observer of the log: the checker of the invariants."""

    def appended(self, partition: TopicPartition, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        """Take note of an internal message that is now in the log, with what became visible together with it."""
        ...

    def produced(self, record: ExternalRecord, offset: int, sender: object, *, late: bool) -> None:
        """Take note of a plain record that is now in the log; ``late``: a successor of its sender has looked there."""
        ...

    def trimmed(self, partition: TopicPartition, before: int) -> None:
        """Take note of a trim that is about to happen."""
        ...

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Take note of messages that a power loss has taken back."""
        ...


class SharedLog(MemoryLogData):
    """The shared state of all processes. ``rand`` is the scheduler's generator; ``now`` the virtual time."""

    def __init__(self, now: Callable[[], int], rand: Callable[[], float], behaviour: Behaviour) -> None:
        super().__init__(now)
        self.partitions: dict[TopicPartition, SimPartition] = {}  # type: ignore[assignment]  # a narrower one
        self.coordinators: dict[TopicPartition, Coordinator] = {}
        self.observer: Observer
        self.queues: list[Queue] = []  # those that hold something
        self.reluctant: dict[TopicPartition, float] = {}
        self.blocked_until: dict[TopicPartition, int] = {}
        self.skew: dict[TopicPartition, int] = {}  # of the clock of the partition's leader
        self.opened: list[TopicPartition] = []  # where a stranger has a transaction open
        self.away_until = 0  # time until which the log answers nothing
        self.repeats: list[Sent] = []  # may be appended once more
        self.seen: Counter[str] = Counter()
        self.lookers: Counter[tuple[int, TopicPartition]] = Counter()  # lives of a task by (task, asked for)
        self.inputs_end = False  # nothing more comes from outside: the job is drained (E7)
        self.rand = rand
        self.hit: Callable[[], None] = lambda: None  # told of each acknowledgement that got lost
        self._behaviour = behaviour
        self.reads_ahead = behaviour.reads_ahead
        self.fetch_ms = behaviour.fetch_ms
        self._trims: list[tuple[int, TopicPartition, int]] = []  # (when it is done, partition, before)
        self._unsynced: list[TopicPartition] = []  # where each message went that a power loss may still take

    def next_row(self, partition: TopicPartition, offset: int) -> int:
        """Return the offset of the first message at an offset or behind it: some offsets hold none."""
        into = self.partition(partition)
        index = into.index(offset)
        return into.rows[index].offset if index < len(into.rows) else offset

    def end_faults(self) -> None:
        """From here on be quick, and repeat nothing: slowness is a fault, too.

        With data in pieces, a commit could take longer than send_timeout_ms for ever (B1).
        """
        self.blocked_until.clear()
        self.end_transactions(all_of_them=True)
        self.reluctant = dict.fromkeys(self.reluctant, 0.0)
        self.repeats.clear()
        for coordinator in self.coordinators.values():
            coordinator.timeout_ms = float("inf")
        self.away_until = 0

    def end_transactions(self, *, all_of_them: bool = False) -> None:
        """End what strangers have open in inputs, when it is time."""
        now = self.clock()
        for partition in [p for p in self.opened if all_of_them or self.partition(p).open_until <= now]:
            self.end_transaction(partition)
            self.opened.remove(partition)

    def drop_queues(self, partition: TopicPartition) -> None:
        """Lose what dead processes have sent to a partition."""
        for queue in [q for q in self.queues if q.sender is None and q.partition == partition]:
            queue.items.clear()
            self.queues.remove(queue)

    def add(self, partition: TopicPartition, start: int) -> None:
        """Make an empty partition; what was before ``start`` is trimmed."""
        reluctance = self._behaviour.reluctance
        self.reluctant[partition] = reluctance[len(self.partitions) % len(reluctance)]
        self.partitions[partition] = SimPartition()
        self.partitions[partition].start = start
        if partition in self._behaviour.transactional:
            into, unkind = self.partitions[partition], self._behaviour.unkind
            self.coordinators[partition] = Coordinator(into, unkind.timeout_ms, renews=unkind.renews, seen=self.seen)

    def partition(self, partition: TopicPartition) -> SimPartition:
        """Return the partition."""
        return self.partitions[partition]

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: bytes | None,
    ) -> tuple[int, int]:
        """Append one message by the clock of the partition's leader."""
        into = self.partition(partition)
        time_ms = self.clock() + self.skew.get(partition, 0)
        if not self._behaviour.clock_goes_back:
            time_ms = max(time_ms, into.append_time_ms)
        into.append_time_ms, offset = time_ms, into.end
        at_ms = time_ms if timestamp_ms is None else timestamp_ms
        into.rows.append(LogRow(offset, time_ms, at_ms, key, value, headers))
        self._unsynced.append(partition)
        return offset, time_ms

    def lose_power(self, share: float) -> int:
        """Take back a share of what was appended since the last append that was synced; return how many messages.

        What one file keeps, it keeps in the order of the appends, over all partitions (as the embedded log does).
        """
        kept = int(len(self._unsynced) * (1 - share))
        gone: Counter[TopicPartition] = Counter(self._unsynced[kept:])
        for partition, appended in gone.items():
            into = self.partition(partition)
            count = min(appended, len(into.rows))  # the others are trimmed
            self.observer.unmade(partition, into.rows[len(into.rows) - count :])
            del into.rows[len(into.rows) - count :]
        self._unsynced = []
        return gone.total()

    def truncate(self, partition: TopicPartition, end: int) -> int:
        """Lose acknowledged messages from ``end`` on, which no log may do; return how many."""
        into = self.partition(partition)
        into.fence = -1
        if partition in self.coordinators:
            self.coordinators[partition].written = []
        count = into.truncate(end)
        self.repeats = [sent for sent in self.repeats if sent.partition != partition]
        return count

    def forget_queues(self) -> None:
        """Drop what is on its way from anybody."""
        for queue in self.queues:
            queue.items.clear()
        self.queues = []
        self.repeats.clear()
        self._trims.clear()

    def trim_later(self, partition: TopicPartition, before: int) -> None:
        """Delete messages before an offset, at once or some time later."""
        trim_ms = self._behaviour.unkind.trim_ms
        takes_ms = int(self.rand() * trim_ms) if trim_ms else 0
        self.seen["trims that take a while"] += takes_ms > 0
        self._trims.append((self.clock() + takes_ms, partition, before))
        self.trim_due()

    def trim_due(self) -> None:
        """Do the trims that are due."""
        if not self._trims:
            return
        now = self.clock()
        due, self._trims = [t for t in self._trims if t[0] <= now], [t for t in self._trims if t[0] > now]
        for _, partition, before in due:
            if before <= self.partition(partition).end:  # else it was cut meanwhile: a damage
                self.observer.trimmed(partition, before)
                MemoryLog(self).trim(partition, before)

    def pump(self) -> bool:
        """Apply the next message of a random queue; False if there is none, or its partition does not answer."""
        queues = self.queues
        if not queues:
            return False
        at = int(self.rand() * len(queues))
        queue, now = queues[at], self.clock()
        if queue.not_before > now or self.away_until > now:
            return False
        if self.blocked_until and self.blocked_until.get(queue.partition, 0) > now:
            return False
        if self.coordinators and queue.partition in self.coordinators:
            into = self.partition(queue.partition)
            if into.readable_end(now) < into.end:
                return False  # the mark of the transaction before is still to be written
        if (queue.sender is not None and queue.sender.stalled) or self.rand() < self.reluctant[queue.partition]:
            return False
        sent = queue.items.popleft()
        if not queue.items:
            queues[at] = queues[-1]
            queues.pop()
        delivery = self._apply(sent)
        if queue.sender is not None:
            if queue.sender.lose_ack:
                queue.sender.lose_ack, queue.acks = False, False
                self.hit()
            if sent.plain is not None:
                sent.plain.lost |= not queue.acks
            if delivery is None:
                return True
            if queue.acks and not (sent.plain is not None and sent.plain.lost):
                queue.sender.deliveries.append(delivery)
            else:
                queue.sender.lost_acks.append((sent, delivery))
        return True

    def _apply_plain(self, sent: Sent, plain: Plain) -> Delivery | None:
        """Append one record; return the delivery of all that it was sent with, if it is the last one."""
        (record,) = sent.outputs
        offset, time_ms = self.append(record.partition, record.key, record.value, record.timestamp_ms, record.headers)
        self._unsynced.clear()  # it leaves the job, so it is on disk before anybody sees it
        late = plain.sender.is_succeeded(sent.owner, record.partition)
        self.observer.produced(record, offset, plain.sender, late=late)
        plain.left -= 1
        plain.ends[record.partition] = offset + 1
        return None if plain.left else Delivery(sent.owner, sent.token, offset, time_ms, ends=tuple(plain.ends.items()))

    def _apply(self, sent: Sent) -> Delivery | None:
        if sent.plain is not None:
            return self._apply_plain(sent, sent.plain)
        assert sent.partition is not None
        if sent.partition in self.coordinators:
            return self._apply_in_transaction(sent, sent.partition)
        if not self._admits(sent):
            kind = decode_changelog_header(sent.value).type.name.lower().replace("_", " ")
            self.seen[f"{kind} messages refused by the fence"] += 1
            return Delivery(sent.owner, sent.token, -1, self.clock(), True)
        offset, time_ms = self.append(sent.partition, None, sent.value, None, None)
        for record in sent.outputs:
            self.append(record.partition, record.key, record.value, record.timestamp_ms, record.headers)
        if sent.sync:
            self._unsynced.clear()
        unkind = self._behaviour.unkind
        if unkind.lag and self.rand() < unkind.lag:
            self.partition(sent.partition).hide(offset, self.clock() + int(self.rand() * unkind.lag_ms), self.clock())
        self.observer.appended(sent.partition, offset, sent.value, sent.outputs)
        if self.rand() < self._behaviour.repeat_rate:
            self.repeats.append(sent._replace(outputs=()))
            if self.rand() < 0.3:  # the sender's own retry: the second one is acknowledged
                offset, time_ms = self.repeat(-1) or (offset, time_ms)
            if self.inputs_end:  # a watermark that comes again behind the end of its channel would take the end back
                self.repeats.clear()  # (E7); no real log repeats what lies so far back
        return Delivery(sent.owner, sent.token, offset, time_ms)

    def _apply_in_transaction(self, sent: Sent, partition: TopicPartition) -> Delivery | None:
        """Take a message of a transaction; with its last one all of it is in the log."""
        coordinator, now = self.coordinators[partition], self.clock()
        assert sent.writer is not None
        takes = coordinator.takes(sent.writer, now, ends=sent.sync)
        if sent.takes_over:
            return None
        if not takes and sent.sync:
            kind = decode_changelog_header(sent.value).type.name.lower().replace("_", " ")
            self.seen[f"{kind} messages refused by the fence"] += 1
            self.seen["messages refused after a time-out"] += coordinator.holder is None
            sent.writer.taken_over = True
            return Delivery(sent.owner, sent.token, -1, now, True)
        into = self.partition(partition)
        time_ms = into.append_time_ms = max(into.append_time_ms, now + self.skew.get(partition, 0))
        written = Written(into.end, time_ms, sent.token, sent.value, sent.outputs)
        if not takes:
            coordinator.keep(sent.writer, written)
            return None
        coordinator.write(written, now)
        if not sent.sync:
            return None
        delivery = self._end(coordinator, partition)
        sent.writer.end = into.end
        return delivery._replace(owner=sent.owner)

    def _end(self, coordinator: Coordinator, partition: TopicPartition) -> Delivery:
        """Commit the open transaction: its messages and outputs are there at once, each with a mark behind it.

        One that is split by a late end has its outputs outside of it: they are lost.
        """
        into, unkind = self.partition(partition), self._behaviour.unkind
        written, coordinator.written = coordinator.written, []
        if coordinator.is_split():
            written = [each._replace(outputs=()) for each in written]
        for each in written:
            row = LogRow(each.offset, each.append_time_ms, each.append_time_ms, None, each.value, None)
            into.rows.append(row)
        into.leave_out(1)
        if self.rand() < unkind.late:
            into.late, into.late_until = written[0].offset, self.clock() + 1 + int(self.rand() * unkind.late_ms)
        outputs = [record for each in written for record in each.outputs]
        for record in outputs:
            self.append(record.partition, record.key, record.value, record.timestamp_ms, record.headers)
        for target in {record.partition: None for record in outputs}:
            self.partition(target).leave_out(1)
        for each in written:
            self.observer.appended(partition, each.offset, each.value, each.outputs)
        last = written[-1]
        return Delivery(0, last.token, last.offset, last.append_time_ms, trailing=1)

    def repeat(self, at: int) -> tuple[int, int] | None:
        """Append ``repeats[at]`` once more; None if the fence refuses it."""
        sent = self.repeats[at]
        if self.rand() < 0.7:
            del self.repeats[at]
        assert sent.partition is not None
        if not self._admits(sent):
            return None
        offset, time_ms = self.append(sent.partition, None, sent.value, None, None)
        if sent.sync:
            self._unsynced.clear()
        self.seen["repeated messages"] += 1
        self.observer.appended(sent.partition, offset, sent.value, ())
        return offset, time_ms

    def _admits(self, sent: Sent) -> bool:
        assert sent.partition is not None
        if sent.fence is None or not self._behaviour.fenced(sent.partition):
            return True
        into = self.partition(sent.partition)
        if into.fence > sent.fence:
            return False
        into.fence = sent.fence
        return True
