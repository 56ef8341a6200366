"""Tells the consumers of a task its event time (E2), and finds which of its inputs are idle (E4)."""

from collections import deque
from collections.abc import Callable, Mapping

from grete.core.lifecycle import TaskStatus
from grete.core.ports import Core
from grete.execution.inputs.input_reader import InputReader
from grete.execution.limits import WATERMARK_MS, WATERMARKS_PER_CHECKPOINT
from grete.execution.task_code.ports import Runner
from grete.execution.task_code.record_times import InputTimes
from grete.execution.timing.event_time import BEFORE_ALL
from grete.protocol.ids import TopicPartition
from grete.settings import Settings

NEVER_MS = float("inf")  # later than any clock
IdleInput = tuple[TopicPartition, bool]  # an input, whether it has ended
TimeAndIdle = tuple[int, bool]  # event time in ms, whether the task is idle


class EventTimeOut:
    """A driver's part in the event time of its task, which the runner keeps. Times are the driver's clock.

    Watermarks are held back for a moment: each of them goes to every partition.
    """

    def __init__(
        self, core: Core, runner: Runner, input_reader: InputReader, settings: Settings, times: InputTimes | None = None
    ) -> None:
        """``times``: how the inputs tell time; None: as the log does."""
        times = InputTimes() if times is None else times
        task, self._core, self._runner, self._input_reader = core.task, core, runner, input_reader
        partitions = 0 if task.deterministic else len(task.timed_outputs)  # else the code tells, by logical time
        every_ms = max(WATERMARK_MS, partitions, settings.checkpoint_interval_ms // WATERMARKS_PER_CHECKPOINT)
        self._every_ms = every_ms if partitions else NEVER_MS
        self._told_ms = -NEVER_MS
        self._found_idle: deque[IdleInput] = deque()  # the task is still to be told of
        self._external = task.external
        self._draining = self._ends_told = False
        self._told: TimeAndIdle = BEFORE_ALL, False
        self.holds: Callable[[TopicPartition], bool] = lambda _: False  # whether what was read of an input has not run
        external = [each for each in task.external if task.keeps_time and each.topic not in times.silent]
        self._idle = IdleInputs({p: times.idle_ms.get(p.topic, settings.event_time_idle_ms) for p in external})

    def reset(self) -> None:
        """The state was rolled back: forget what was told since its commit."""
        self._told = BEFORE_ALL, False
        if self._ends_told:
            self._tell_ends()

    def sent(self) -> None:
        """Records leave: a consumer that was told that this task is idle, or has ended, takes it for neither now.

        So it is to be told again, though nothing has changed here: a timer by the clock has fired while all sources
        are idle, or a source went on after its end, and has ended again.
        """
        if self.told_idle:
            self._told = BEFORE_ALL, False

    @property
    def told_idle(self) -> bool:
        """Whether consumers take this task for idle: its time holds theirs back no more."""
        return self._told[1]

    def end_inputs(self) -> None:
        """The job is drained: once what is to be read first was read, nothing more is read from outside (E7)."""
        self._draining = True

    def _tell_ends(self) -> None:
        self._ends_told = True
        self._input_reader.leave(self._external)
        self._found_idle = deque((partition, True) for partition in self._external)

    @property
    def drained(self) -> bool:
        """Whether the task knows that its inputs from outside have ended, and its consumers were told what follows."""
        return self._ends_told and self._at_rest and not self._found_idle

    def active(self, partition: TopicPartition, now_ms: float) -> None:
        """An input is read again from elsewhere, or has brought something."""
        self._idle.active(partition, now_ms)

    def is_idle(self, partition: TopicPartition) -> bool:
        """Whether event time goes by an input, and does not wait for it now, or soon will not."""
        return self._idle.is_idle(partition)

    def next_idle(self, now_ms: float) -> IdleInput | None:
        """Return an input that has brought nothing for a while (E4): once, until it is active again; None: none has.

        Of a job that is drained, also return whether it has ended (E7).
        """
        if self._draining and not (self._ends_told or self._core.external.read_first):
            self._tell_ends()
        if now_ms >= self._idle.due_ms and not self._ends_told:
            idle = self._idle.idle_partitions(now_ms, self._where)
            self._found_idle.extend((partition, False) for partition in idle)
        return self._found_idle.popleft() if self._may_tell_idle else None

    @property
    def _may_tell_idle(self) -> bool:
        return bool(self._found_idle) and not self.holds(self._found_idle[0][0])

    def _where(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return the time of an input; None: records of it come later: it waits for others (A2c), or some are held."""
        later = self._core.external.waits(partition) or self.holds(partition)
        return None if later else self._input_reader.where(partition)

    @property
    def all_idle(self) -> bool:
        """Whether no external partition can hold event time back any more, and consumers were told so."""
        return self._at_rest and not self._idle.active_partitions and not self._found_idle

    @property
    def _at_rest(self) -> bool:
        left = self._runner.due is not None and self._runner.due.left
        return self._core.at_rest and not left and not self.has_news

    @property
    def has_news(self) -> bool:
        """Whether consumers are still to be told of the event time as it is."""
        return self._every_ms < NEVER_MS and self._runner.watermark not in (None, self._told)

    def take(self, now_ms: float, *, at_once: bool = False) -> TimeAndIdle | None:
        """Return the event time if consumers are to be told of it now (E2), and take it for told."""
        if not self.has_news or self._core.status is not TaskStatus.RUNNING:
            return None
        if now_ms < self._told_ms + self._every_ms and not at_once:
            return None
        watermark = self._runner.watermark
        assert watermark is not None
        self._told, self._told_ms = watermark, now_ms
        return watermark

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms there is something to tell or to look for."""
        if self._may_tell_idle or (self._draining and not self._ends_told):
            return 0.0
        due_ms = min(self._idle.due_ms, self._told_ms + self._every_ms if self.has_news else NEVER_MS)
        return max(0.0, due_ms - now_ms)


class IdleInputs:
    """External partitions that were read to their end and have brought nothing for a while."""

    def __init__(self, idle_ms: Mapping[TopicPartition, int]) -> None:
        """``idle_ms``: by partition, how long it is to bring nothing."""
        self._idle_ms = idle_ms
        self._since: dict[TopicPartition, float] = {}  # of those that are not idle
        self._left: dict[TopicPartition, tuple[int, int]] = {}  # position and end, where something was left
        self.due_ms = NEVER_MS

    def active(self, partition: TopicPartition, now_ms: float) -> None:
        """The partition is read again from elsewhere, or has brought something."""
        if partition in self._idle_ms:
            self._since[partition] = now_ms
            self._left.pop(partition, None)
            self.due_ms = min(self.due_ms, now_ms + self._idle_ms[partition])

    def is_idle(self, partition: TopicPartition) -> bool:
        """Whether it was found idle, and has brought nothing since."""
        return partition in self._idle_ms and partition not in self._since

    @property
    def active_partitions(self) -> int:
        """Return the number of partitions that are not idle."""
        return len(self._since)

    def idle_partitions(
        self, now_ms: float, where: Callable[[TopicPartition], tuple[int, int] | None]
    ) -> list[TopicPartition]:
        """Return the partitions that have become idle. ``where``: their position and end; None: rows are at hand.

        The message before an end need not be a record (S1): if the end stays and nothing comes, nothing is there.
        """
        idle = []
        for partition, since in list(self._since.items()):
            if now_ms - since < self._idle_ms[partition]:
                continue
            found = where(partition)
            if found is not None and (found[0] >= found[1] or self._left.get(partition) == found):
                idle.append(partition)
                del self._since[partition]
                continue
            self._since[partition] = now_ms
            if found is not None:
                self._left[partition] = found
        self.due_ms = min((since + self._idle_ms[p] for p, since in self._since.items()), default=NEVER_MS)
        return idle
