"""One process's view of the simulated log: its sends, their answers, and the rows that it may read now."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from grete.errors import LogAway, OffsetOutOfRange, TransientError
from grete.logs.memory import MemoryLog
from grete.open_transaction import OpenTransaction
from grete.ports import Delivery, ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.boundary import Boundary, name_of
from tests.verification.simulation.feeds import is_broadcast, value_for
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.sends import Plain, Queue, Sent, TransactionalWriter


class SimLog(MemoryLog):
    """grete.ports.Log of one process, whose tasks share it."""

    def __init__(self, shared: SharedLog, boundary: Boundary, number: int) -> None:
        """``number``: of the tasks that share it, in their stages."""
        super().__init__(shared)
        self.shared = shared
        self._number = number
        self.deliveries: list[Delivery] = []
        self.lost_acks: list[tuple[Sent, Delivery]] = []
        self.stalled = False  # the process is paused, and its client's thread with it
        self.lose_ack = False  # the next acknowledgement gets lost
        self._writers: dict[TopicPartition, TransactionalWriter] = {}
        self._boundary = boundary
        self._queued: dict[TopicPartition, Queue] = {}
        self._asked: dict[TopicPartition, int] = {}  # the offset that is read next
        self._ahead: dict[TopicPartition, list[LogRow]] = {}  # fetched and not read yet
        self._comes: dict[TopicPartition, tuple[int, int]] = {}  # an offset that was sought, and when it has come
        # owner and partition → its number among the lives of its task that asked for bounds
        self._looked: dict[tuple[int, TopicPartition], int] = {}
        self.tasks: Sequence[int] = ()  # by owner
        self.whose_turn: Callable[[], int] = lambda: 0  # an owner

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end) offsets."""
        self._boundary.before("ask for bounds")
        self._check_away()
        into = self.shared.partition(partition)
        end, asked = into.readable_end(self.shared.clock()), self._asked.get(partition)
        self.shared.seen["acknowledged and not readable yet"] += end < into.end
        if asked is not None and asked < end and not into.has_rows(asked):
            end = asked  # what cannot be read at the end does not count, once it was read up to
        owner = self.whose_turn()
        if (owner, partition) not in self._looked:
            self.shared.lookers[self.tasks[owner], partition] += 1
            self._looked[owner, partition] = self.shared.lookers[self.tasks[owner], partition]
        self._boundary.after("ask for bounds")
        return into.start, end

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return the transactions that strangers have open behind the bounds of these partitions."""
        if not self.shared.opened:
            return {}
        self._boundary.before("ask for bounds")
        self._check_away()
        found = super().open_transactions(partitions)
        self.shared.seen["ends that an open transaction hides"] += len(found)
        self._boundary.after("ask for bounds")
        return found

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on. Raises OffsetOutOfRange."""
        shared, call = self.shared, "read changelog" if partition.topic.endswith(".changelog") else "read input"
        self._boundary.before(call)
        fetched = self._ahead.pop(partition, None) if self._ahead else None
        if fetched and offset == self._asked[partition]:
            shared.seen["messages read ahead"] += len(fetched)
        elif shared.clock() < shared.away_until and offset == self._asked.get(partition):
            self._boundary.after(call)
            return []  # what was there was fetched, and no more is known of
        else:
            if fetched:
                shared.seen["messages read ahead and not wanted"] += len(fetched)
            fetched = self._fetch(partition, offset, max_bytes)
        # a client fetches more than it is asked for, and what comes after that it does not see before it asks again
        ahead = shared.reads_ahead and len(fetched) > 1
        rows = fetched[: 1 + int(shared.rand() * len(fetched))] if ahead else fetched
        if len(rows) < len(fetched):
            self._ahead[partition] = fetched[len(rows) :]
        self._asked[partition] = rows[-1].offset + 1 if rows else offset
        self._boundary.after(call)
        return rows

    def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        self._check_away()
        into, now = self.shared.partitions[partition], self.shared.clock()
        end = shown = into.readable_end(now)
        if offset > end:
            raise OffsetOutOfRange(f"{partition}: offset {offset} is beyond {end}", partition=partition, offset=offset)
        if now < into.hidden_until and into.hidden < end:
            shown = into.hidden
            self.shared.seen["reads that lag behind the end"] += 1
        if offset == end and offset >= into.start:
            return []
        rows = super().read(partition, offset, max_bytes)
        if rows and rows[-1].offset >= shown:
            rows = [row for row in rows if row.offset < shown]
        if not is_broadcast(partition):
            return rows
        return [row._replace(value=value_for(self._number, partition, row.value or b"")) for row in rows]

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Note when the fetch will have ended; with no draw, so that all else in a world stays as it was."""
        if fetch_ms := self.shared.fetch_ms:
            now = self.shared.clock()
            comes = {
                each: (offset, now + (7 * offset + 3) % fetch_ms)
                for each, (offset, end) in spans.items()
                if offset < end
            }
            self._comes.update(comes)

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Tell whether the fetch has ended; True also if none was begun there."""
        sought, ready_ms = self._comes.get(partition, (offset, 0))
        if sought == offset and self.shared.clock() < ready_ms:
            self.shared.seen["reads of what is on its way"] += 1
            return False
        self._comes.pop(partition, None)
        return True

    def leave(self, partition: TopicPartition) -> None:
        """Forget what was fetched."""
        self._ahead.pop(partition, None)

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Show what is known to be committed: a log waits until it can be read."""
        into = self.shared.partition(partition)
        if into.late is not None and committed >= into.late:
            into.late = None

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
        writer = self._writers.get(partition) or TransactionalWriter()
        if writer.taken_over:
            raise TransientError(f"{partition}: simulated: the transactional id was taken over", partition=partition)
        if partition in self.shared.coordinators and partition not in self._writers:
            self._writers[partition] = writer
            self._put(Sent(0, partition, b"", None, (), writer=writer, takes_over=True), partition)
        self._put(Sent(token, partition, value, fence, tuple(outputs), sync, writer=writer, owner=owner), partition)
        self._boundary.after(call)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was fetched, and asked for, of partitions that no task here reads for now."""
        for partition in partitions:
            self._ahead.pop(partition, None)
            self._asked.pop(partition, None)

    def give_up(self, changelog: TopicPartition) -> None:
        """Forget the writer of a task's changelog, as the task has ended; what it had not completed is dropped."""
        if self._writers.pop(changelog, None) is not None:
            queue = self._queued.pop(changelog)
            if queue.items:
                queue.items.clear()
                self.shared.queues.remove(queue)

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records."""
        self._boundary.before("produce")
        plain = Plain(len(records), self)
        for record in records:
            self._put(Sent(token, None, b"", None, (record,), plain=plain, owner=owner), record.partition)
        self._boundary.after("produce")

    def is_succeeded(self, owner: int, partition: TopicPartition) -> bool:
        """Whether another life of an owner's task has looked into a partition since that one did first."""
        return self.shared.lookers[self.tasks[owner], partition] > self._looked.get((owner, partition), 0)

    def poll(self) -> list[Delivery]:
        """Return the deliveries that became known since the last call."""
        self._boundary.before("poll")
        deliveries, self.deliveries = self.deliveries, []
        self._boundary.after("poll")
        return deliveries

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages before an offset."""
        self._boundary.before("trim")
        if self.shared.clock() < self.shared.away_until:
            self._boundary.after("trim")
            return  # it is lost
        self.shared.trim_later(partition, before)
        self._boundary.after("trim")

    def _check_away(self) -> None:
        if self.shared.clock() < self.shared.away_until:
            self.shared.seen["questions that the log does not answer"] += 1
            raise LogAway("simulated: no broker answers")

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
        self._queued, self._writers = {}, {}
        self.shared.seen["messages lost with their sender"] += len(lost)
        return lost
