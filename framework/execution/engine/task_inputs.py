"""The inputs of a task: how far each is read, what is told of that, and which of them have ended."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from grete.core.ports import Core
from grete.execution.engine.task_io import TaskIO
from grete.execution.inputs.backpressure import ReportedPositions
from grete.execution.inputs.input_reader import InputReader
from grete.execution.inputs.watermarks import EventTimeOut
from grete.execution.limits import OPEN_TRANSACTION_CHECK_MS
from grete.execution.task_code.ports import Runner
from grete.execution.task_code.record_times import InputTimes
from grete.logs.open_transactions import WaitNotices
from grete.ports import Log, LogRow
from grete.protocol.ids import TopicPartition

logger = logging.getLogger("grete")


class AwaitedTransactions:
    """Such an input ends where its messages end, and not where readers stop before an open transaction."""

    def __init__(self, log: Log, task: str, mono_ms: Callable[[], float]) -> None:
        """``task``: in whose name a wait is logged."""
        self._log = log
        self._saying = WaitNotices(
            lambda text: logger.warning("awaits a transaction", extra={"task": task, "for": text}),
            lambda: mono_ms() / 1000,
        )

    def bounds(
        self, partitions: Sequence[TopicPartition], first: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of partitions; of the ``first`` ones, with the end of what cannot be read yet."""
        bounds = self._log.all_bounds(partitions)
        for partition, found in self._log.open_transactions(first).items() if first else ():
            bounds[partition] = bounds[partition][0], found.end
        return bounds

    def hides(self, partition: TopicPartition, needed: Callable[[int], bool]) -> bool:
        """Whether an open transaction hides rows of an input that are ``needed``, from its first offset on."""
        found = self._log.open_transactions([partition]).get(partition)
        hidden = found is not None and needed(found.offset)
        self._saying.look({partition: found} if found is not None and hidden else {})
        return hidden


class InputHoles:
    """The holes in the inputs of one task, since its process began to read."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}  # offset to be read next
        self._passed = Counter[TopicPartition]()
        self._frozen: deque[tuple[int, Counter[TopicPartition]]] = deque([(-1, Counter())])  # by checkpoint id

    def read(self, partition: TopicPartition, first: int, rows: Sequence[LogRow]) -> None:
        """Note rows; ``first``: where reading began, of the first ones since a start or a rollback."""
        end, begin = rows[-1].offset + 1, self._next.get(partition, first)
        assert end - begin >= len(rows), f"{partition}: {len(rows)} rows between offset {begin} and {end}"
        self._passed[partition] += end - begin - len(rows)
        self._next[partition] = end

    def dropped(self, partition: TopicPartition, first: int, rows: int) -> None:
        """Note that the last rows, those from offset ``first`` on, are read again."""
        self._passed[partition] -= self._next[partition] - first - rows
        self._next[partition] = first

    def froze(self, checkpoint_id: int) -> None:
        """Note that this checkpoint holds what was read so far."""
        assert checkpoint_id > self._frozen[-1][0], f"{checkpoint_id} is frozen behind {self._frozen[-1][0]}"
        self._frozen.append((checkpoint_id, self._passed.copy()))

    def rolled_back(self) -> None:
        """Note that what was read since the last checkpoint is read again."""
        self._next.clear()
        self._passed = self._frozen[-1][1].copy()

    def committed(self, checkpoint_id: int) -> Mapping[TopicPartition, int]:
        """Return the number by partition below the offsets of a commit; later questions are about later commits."""
        while len(self._frozen) > 1 and self._frozen[1][0] <= checkpoint_id:
            self._frozen.popleft()
        return self._frozen[0][1]


class TaskInputs:
    """The streams and external partitions that one task reads."""

    def __init__(self, core: Core, runner: Runner, io: TaskIO) -> None:
        wiring, log, settings = core.task, io.log, io.settings
        self.internal = dict.fromkeys(partition for _, partition in wiring.channels)
        self.partitions: tuple[TopicPartition, ...] = (*self.internal, *wiring.external)
        in_order = wiring.keeps_time or not wiring.deterministic or io.priorities
        ordered = wiring.external if in_order else ()
        times = InputTimes() if io.times is None else io.times
        self.reader = InputReader(
            log, self.partitions, settings.batch_bytes_max, ordered=ordered, times=times.times, priorities=io.priorities
        )
        self.holes = InputHoles()
        self.event_time = EventTimeOut(core, runner, self.reader, settings, times)
        self.reader.apart = self._apart
        producers, lag_max = (
            Counter(partition for _, partition in wiring.channels),
            settings.downstream_lag_messages_max,
        )
        self.reported = ReportedPositions(log, self.reader, core.inputs.processed_offset, producers, lag_max)
        self.awaited = AwaitedTransactions(log, wiring.name, io.mono_ms)
        self.asked = 0  # the last checkpoint that the tasks before this one are asked to close (A9)
        self.end_due_ms = 0.0  # when to look whether the external inputs have ended
        self._core, self._mono_ms = core, io.mono_ms

    def _apart(self, read: TopicPartition, other: TopicPartition) -> bool:
        """Whether they share a topic, and the other one holds time back: else what it has at hand would come late."""
        grouped = self._core.task.grouped
        return read.topic == other.topic and read.topic in grouped and not self.event_time.is_idle(other)

    def next_batch(self) -> tuple[TopicPartition, list[LogRow]] | None:
        """Read on, after all that was read before is told. Raises OffsetOutOfRange."""
        self.reported.look(self._mono_ms(), self.asked)
        return self.reader.next_batch(self._core.external.read_first)

    def new_ends(self) -> Iterator[TopicPartition]:
        """Yield the external inputs that have nothing left, and of which the core is not told yet (A2b)."""
        external = self._core.external
        for partition in self._core.task.external if self._mono_ms() >= self.end_due_ms else ():
            if not external.ended[partition] and self._has_ended(partition):
                yield partition

    def _has_ended(self, partition: TopicPartition) -> bool:
        """Whether all of an input was read; of one that is read first, also what an open transaction hides (A2c)."""
        external = self._core.external
        if partition in external.read_first and self.awaited.hides(partition, partial(external.needs, partition)):
            self.end_due_ms = self._mono_ms() + OPEN_TRANSACTION_CHECK_MS
            return False
        return self.reader.drained(partition)
