"""The inputs of a task: how far each is read, what is told of that, and which of them have ended."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from grete.core.ports import Core
from grete.execution.engine.task_io import TaskIO
from grete.execution.inputs.awaited_transactions import AwaitedTransactions
from grete.execution.inputs.backpressure import ReportedPositions
from grete.execution.inputs.input_holes import InputHoles
from grete.execution.inputs.input_reader import InputReader
from grete.execution.inputs.watermarks import EventTimeOut
from grete.execution.limits import OPEN_CHECK_MS
from grete.execution.task_code.ports import Runner
from grete.execution.task_code.record_times import InputTimes
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition


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
            log,
            self.partitions,
            settings.batch_bytes_max,
            ordered=ordered,
            times=times.times,
            priorities=io.priorities,
        )
        self.holes = InputHoles()
        self.event_time = EventTimeOut(core, runner, self.reader, settings, times)
        producers, lag_max = (
            Counter(partition for _, partition in wiring.channels),
            settings.downstream_lag_messages_max,
        )
        self.reported = ReportedPositions(log, self.reader, core.inputs.processed_offset, producers, lag_max)
        self.awaited = AwaitedTransactions(log, wiring.name, io.mono_ms)
        self.asked = 0  # the last checkpoint that the tasks before this one are asked to close (A9)
        self.end_due_ms = 0.0  # when to look whether the external inputs have ended
        self._core, self._mono_ms = core, io.mono_ms

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
            self.end_due_ms = self._mono_ms() + OPEN_CHECK_MS
            return False
        return self.reader.drained(partition)
