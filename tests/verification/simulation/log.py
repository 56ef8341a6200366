"""The simulated log: what a process sends is queued, applied later or never, acknowledged later or never, or twice.

It keeps the port's contract (framework.ports.Log) and nothing more: order within a partition of one sender, no gap in a
queue, one delivery per send. Everything else is up to the scheduler.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from framework.logs.memory import MemoryLog, MemoryLogData, MemoryPartition
from framework.ports import Delivery, ExternalRecord, LogRow
from protocol.changelog import decode_changelog_header
from protocol.ids import TopicPartition
from tests.verification.simulation.boundary import Boundary, name_of


class Plain:
    """Plain records that share one delivery. Each of their partitions gets its own in its own time."""

    __slots__ = ("ends", "left", "lost", "sender")

    def __init__(self, left: int, sender: "SimLog") -> None:
        self.left = left
        self.lost = False  # an acknowledgement was: none is reported
        self.ends: dict[TopicPartition, int] = {}
        self.sender = sender


class Sent(NamedTuple):
    """One send that is on its way."""

    token: int
    partition: TopicPartition | None  # None: a plain record
    value: bytes
    fence: int | None
    outputs: tuple[ExternalRecord, ...]
    sync: bool = False
    plain: Plain | None = None


class Queue:
    """What one process has sent to one partition and the log has not yet applied. ``sender`` None: it is dead."""

    __slots__ = ("acks", "items", "not_before", "partition", "sender")

    def __init__(self, sender: "SimLog | None", partition: TopicPartition) -> None:
        self.sender = sender
        self.partition = partition
        self.items: deque[Sent] = deque()
        self.not_before = 0  # time until which it stays in the network
        self.acks = True  # False: an acknowledgement was lost, so no later one is reported either


class Observer(Protocol):
    """Who watches the log: the checker of the invariants."""

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


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a log treats clients. ``fenced`` tells the partitions in which it compares and appends."""

    fenced: Callable[[TopicPartition], bool]
    repeat_rate: float
    clock_goes_back: bool
    reluctance: tuple[
        float, ...
    ]  # how often a partition puts off what it could append; each takes one of these in turn


class SharedLog(MemoryLogData):
    """What all processes share. ``rand`` is the scheduler's generator; ``now`` the virtual time."""

    def __init__(self, now: Callable[[], int], rand: Callable[[], float], behaviour: Behaviour) -> None:
        super().__init__(now)
        self.observer: Observer
        self.queues: list[Queue] = []  # those that hold something
        self.reluctant: dict[TopicPartition, float] = {}
        self.blocked_until: dict[TopicPartition, int] = {}
        self.skew: dict[TopicPartition, int] = {}  # of the clock of the partition's leader
        self.repeats: list[Sent] = []  # may be appended once more
        self.seen: Counter[str] = Counter()
        self.lookers: Counter[tuple[TopicPartition, TopicPartition]] = Counter()  # processes by (changelog, asked for)
        self.rand = rand
        self.hit: Callable[[], None] = lambda: None  # told of each acknowledgement that got lost
        self._behaviour = behaviour
        self._unsynced: list[TopicPartition] = []  # where each message went that a power loss may still take

    def add(self, partition: TopicPartition, start: int) -> None:
        """Make an empty partition; what was before ``start`` is trimmed."""
        reluctance = self._behaviour.reluctance
        self.reluctant[partition] = reluctance[len(self.partitions) % len(reluctance)]
        self.partitions[partition] = MemoryPartition()
        self.partitions[partition].start = start

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
        into.fence, count = -1, into.end - end
        del into.rows[len(into.rows) - count :]
        self.repeats = [sent for sent in self.repeats if sent.partition != partition]
        return count

    def forget_queues(self) -> None:
        """Drop what is on its way from anybody."""
        for queue in self.queues:
            queue.items.clear()
        self.queues = []
        self.repeats.clear()

    def pump(self) -> bool:
        """Apply the next message of a random queue; False if there is none, or its partition does not answer."""
        queues = self.queues
        if not queues:
            return False
        at = int(self.rand() * len(queues))
        queue = queues[at]
        if max(queue.not_before, self.blocked_until.get(queue.partition, 0)) > self.clock():
            return False
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
        self.observer.produced(record, offset, plain.sender, late=plain.sender.is_succeeded(record.partition))
        plain.left -= 1
        plain.ends[record.partition] = offset + 1
        return None if plain.left else Delivery(0, sent.token, offset, time_ms, ends=tuple(plain.ends.items()))

    def _apply(self, sent: Sent) -> Delivery | None:
        if sent.plain is not None:
            return self._apply_plain(sent, sent.plain)
        assert sent.partition is not None
        if not self._admits(sent):
            kind = decode_changelog_header(sent.value).type.name.lower().replace("_", " ")
            self.seen[f"{kind} messages refused by the fence"] += 1
            return Delivery(0, sent.token, -1, self.clock(), True)
        offset, time_ms = self.append(sent.partition, None, sent.value, None, None)
        for record in sent.outputs:
            self.append(record.partition, record.key, record.value, record.timestamp_ms, record.headers)
        if sent.sync:
            self._unsynced.clear()
        self.observer.appended(sent.partition, offset, sent.value, sent.outputs)
        if self.rand() < self._behaviour.repeat_rate:
            self.repeats.append(sent._replace(outputs=()))
            if self.rand() < 0.3:  # the sender's own retry: the second one is acknowledged
                offset, time_ms = self.repeat(-1) or (offset, time_ms)
        return Delivery(0, sent.token, offset, time_ms)

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


class SimLog(MemoryLog):
    """framework.ports.Log of one process."""

    def __init__(self, shared: SharedLog, boundary: Boundary, changelog: TopicPartition) -> None:
        super().__init__(shared)
        self.shared = shared
        self.changelog = changelog
        self.deliveries: list[Delivery] = []
        self.lost_acks: list[tuple[Sent, Delivery]] = []
        self.stalled = False  # the process is paused, and its client's thread with it
        self.lose_ack = False  # the next acknowledgement gets lost
        self._boundary = boundary
        self._queued: dict[TopicPartition, Queue] = {}
        self._looked: dict[TopicPartition, int] = {}  # its number among the processes of its task that asked for bounds

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end) offsets."""
        self._boundary.before("ask for bounds")
        found = super().bounds(partition)
        if partition not in self._looked:
            lookers = self.shared.lookers
            self._looked[partition] = lookers[self.changelog, partition] = lookers[self.changelog, partition] + 1
        self._boundary.after("ask for bounds")
        return found

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on. Raises OffsetOutOfRange."""
        call = "read changelog" if partition == self.changelog else "read input"
        self._boundary.before(call)
        rows = super().read(partition, offset, max_bytes)
        self._boundary.after(call)
        return rows

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        """Queue one internal message."""
        call = name_of(value)
        self._boundary.before(call)
        self._put(Sent(token, partition, value, fence, tuple(outputs), sync), partition)
        self._boundary.after(call)

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records."""
        self._boundary.before("produce")
        plain = Plain(len(records), self)
        for record in records:
            self._put(Sent(token, None, b"", None, (record,), plain=plain), record.partition)
        self._boundary.after("produce")

    def is_succeeded(self, partition: TopicPartition) -> bool:
        """Whether another process of its task has looked into a partition since this one did first."""
        return self.shared.lookers[self.changelog, partition] > self._looked.get(partition, 0)

    def poll(self) -> list[Delivery]:
        """Return what became known since the last call."""
        self._boundary.before("poll")
        deliveries, self.deliveries = self.deliveries, []
        self._boundary.after("poll")
        return deliveries

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages before an offset."""
        self._boundary.before("trim")
        self.shared.observer.trimmed(partition, before)
        super().trim(partition, before)
        self._boundary.after("trim")

    def _put(self, sent: Sent, partition: TopicPartition) -> None:
        queue = self._queued.get(partition)
        if queue is None:
            queue = self._queued[partition] = Queue(self, partition)
        if not queue.items:
            self.shared.queues.append(queue)
        queue.items.append(sent)

    def unapplied(self) -> list[Queue]:
        """Return the queues that hold something."""
        return [queue for queue in self._queued.values() if queue.items]

    def die(self) -> list[Sent]:
        """The process is dead: each queue keeps a random beginning, to be applied late. Return what was lost."""
        rand, lost = self.shared.rand, []
        for queue in self.unapplied():
            kept = int(rand() * (len(queue.items) + 1)) if rand() < 0.7 else 0
            self.shared.seen["torn batches"] += 0 < kept < len(queue.items)
            while len(queue.items) > kept:
                lost.append(queue.items.pop())
            queue.sender = None
            if not queue.items:
                self.shared.queues.remove(queue)
            elif rand() < 0.6:
                self.shared.seen["late appends of the dead"] += kept
                queue.not_before = self.shared.clock() + int(rand() * 400)
        self._queued = {}
        self.shared.seen["messages lost with their sender"] += len(lost)
        return lost
