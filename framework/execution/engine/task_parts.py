"""The parts that a driver and its mode share: the core and its requests, the log, the user's code."""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from grete.api.tasks.context import wall_clock_us
from grete.core import actions as do
from grete.core import events as on
from grete.core.lifecycle import StartupPhase
from grete.core.ports import Core
from grete.errors import Halted, OffsetOutOfRange
from grete.execution.changelog.commit_times import CommitTimes
from grete.execution.engine.pending_sends import PendingSends
from grete.execution.inputs.awaited_transactions import AwaitedTransactions
from grete.execution.inputs.backpressure import Backpressure, ReportedPositions
from grete.execution.inputs.input_holes import InputHoles
from grete.execution.inputs.input_reader import InputReader
from grete.execution.inputs.watermarks import EventTimeOut
from grete.execution.limits import OPEN_CHECK_MS
from grete.execution.task_code.ports import CommitTracing, Runner
from grete.execution.task_code.record_times import InputTimes
from grete.execution.timing.timers import NEVER
from grete.halts import HaltCode
from grete.ports import Log, LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay

SINK = "sink"  # what holds a task that has not seen its sink yet
COVERED = -2  # token of data messages: their commit's delivery covers them (port contract 1)


class TaskParts:
    """One task of this process. ``owner`` marks its deliveries; ``urgent``: what was sent should leave at once."""

    def __init__(
        self,
        owner: int,
        core: Core,
        *,
        log: Log,
        overlay: Overlay,
        runner: Runner,
        settings: Settings,
        mono_ms: Callable[[], float],
        times: InputTimes | None = None,
        priorities: Mapping[str, int] = MappingProxyType({}),
        wall_us: Callable[[], int] = wall_clock_us,
        commit_spans: CommitTracing | None = None,
    ) -> None:
        """``mono_ms`` is a clock that only goes forward; ``times``: how the inputs tell time, if not as by default.

        ``priorities``: by topic from outside; 0 where it is not in there. ``wall_us``: the wall clock.
        """
        self.owner, self.core, self.wiring = owner, core, core.task
        self.log, self.overlay, self.runner = log, overlay, runner
        self.outbox = runner.outbox
        self.settings, self.mono_ms, self._wall_us = settings, mono_ms, wall_us
        self.todo: deque[do.Action] = deque()
        self.steps = 0  # of the core
        self.ready = False  # the state is restored: code may run
        self.held_by: str | None = None  # the bound because of which no input was taken when that was last asked
        self.when_ready: Callable[[], None] = lambda: None
        self.urgent = False
        self.counters: Counter[str] = Counter()
        self.commit_times = CommitTimes(mono_ms)
        self._commit_spans = commit_spans
        self.pending_sends = PendingSends(self.wiring.name, settings.send_timeout_ms)
        self.internal = dict.fromkeys(partition for _, partition in self.wiring.channels)
        self.inputs: tuple[TopicPartition, ...] = (*self.internal, *self.wiring.external)
        in_order = self.wiring.keeps_time or not self.wiring.deterministic or priorities
        ordered = self.wiring.external if in_order else ()
        times = InputTimes() if times is None else times
        self.input_reader = InputReader(
            log, self.inputs, settings.batch_bytes_max, ordered=ordered, times=times.times, priorities=priorities
        )
        self.holes = InputHoles()
        self.event_time = EventTimeOut(core, runner, self.input_reader, settings, times)
        lag_max = settings.downstream_lag_messages_max
        self.backpressure = Backpressure(log, self.wiring.outputs, lag_max, self.wiring.tasks)
        producers = Counter(partition for _, partition in self.wiring.channels)
        self.reported = ReportedPositions(log, self.input_reader, core.inputs.processed_offset, producers, lag_max)
        self.awaited = AwaitedTransactions(log, self.wiring.name, mono_ms)
        self.asked = 0  # the last checkpoint that the tasks before this one are asked to close (A9)
        self.end_due_ms = 0.0  # when to look whether the external inputs have ended

    def tell(self, event: on.Event) -> None:
        """Tell the core; what it asks for comes after what it has asked for before."""
        self.todo.extend(self.core.step(event))
        self.steps += 1
        pending = self.core.commits.pending
        if (None if pending is None else pending.step) is not self.commit_times.step:
            self.commit_times.moved(None if pending is None else pending.step)
            if self._commit_spans is not None:
                last = self.core.commits.committed
                frozen = None if pending is None else pending.checkpoint_id
                self._commit_spans.moved(frozen, -1 if last is None else last.checkpoint_id)
        if not self.ready and self.core.start_up.phase is StartupPhase.DONE:
            self.ready = True
            self.runner.reset()
            self.when_ready()

    @property
    def wall_ms(self) -> int:
        """The wall clock, in ms since 1970."""
        return self._wall_us() // 1_000

    @property
    def wall_timer_in_ms(self) -> float:
        """In how many ms a wall-clock timer is due: 0 or less if one is."""
        wall = self.runner.wall
        return NEVER if wall is None or wall.due == NEVER else wall.due - self.wall_ms

    def next_batch(self) -> tuple[TopicPartition, list[LogRow]] | None:
        """Read on, after all that was read before is told. Raises OffsetOutOfRange."""
        self.reported.look(self.mono_ms(), self.asked)
        return self.input_reader.next_batch(self.core.external.read_first)

    def tell_input_gone(self, error: OffsetOutOfRange) -> None:
        """Tell the core that what comes next of an input is not in the log any more.

        A task that is not fenced ends. For an external input it halts; of a stream the next start judges what is lost.
        """
        if error.partition in self.internal:
            self.tell(on.InputGone(error))
            return
        halted = Halted(
            f"{self.wiring.name} reads on at an offset that is gone: {error}: the retention of the topic is too "
            "short, or the log has lost messages. Decide what is lost, then start the job under another name",
            task=self.wiring.name,
            partition=error.partition,
            offset=error.offset,
            code=HaltCode.INPUT_GONE,
        )
        self.tell(on.InputGone(halted))

    def tell_ends(self) -> bool:
        """Tell the core of external inputs that have nothing left (A2b); True if that is news."""
        news, due = False, self.mono_ms() >= self.end_due_ms
        for partition in self.wiring.external if due else ():
            if not self.core.external.ended[partition] and self._has_ended(partition):
                position = self.core.external.position[partition]
                self.tell(on.ExternalProcessed(partition, position, True, self.overlay.open_bytes))
                news = True
        return news

    def _has_ended(self, partition: TopicPartition) -> bool:
        """Whether all of an input was read; of one that is read first, also what an open transaction hides (A2c)."""
        external = self.core.external
        if partition in external.read_first and self.awaited.hides(partition, partial(external.needs, partition)):
            self.end_due_ms = self.mono_ms() + OPEN_CHECK_MS
            return False
        return self.input_reader.drained(partition)

    def blocked(self, *, lag: bool = True) -> bool:
        """Whether to stop consuming: too much unacknowledged or held back, or consumers too far behind (A8, B1).

        ``lag``: False leaves the consumers out.
        """
        self.held_by = self._bound(lag=lag)
        return self.held_by is not None

    def _bound(self, *, lag: bool) -> str | None:
        """Return the setting whose bound is reached, "sink" for one that was not seen yet; None: no bound is."""
        settings, held, outbox = self.settings, self.runner.external_bytes, self.outbox
        if self.pending_sends.bytes > settings.unacked_bytes_max:
            return "unacked_bytes_max"
        if outbox is not None and not outbox.ready:
            return SINK
        if outbox is not None and outbox.waiting_bytes > settings.sink_buffer_bytes_max:
            return "sink_buffer_bytes_max"  # a sink does not take what it should (1.8 S2)
        if held > settings.sink_buffer_bytes_max and self.core.commits.pending is not None:
            return "sink_buffer_bytes_max"  # until its transaction has ended: the open checkpoint's marker is awaited
        if held > settings.uncommitted_state_bytes_max:
            raise Halted(
                f"{self.wiring.name}: {held} bytes of output in one checkpoint (setting uncommitted_state_bytes_max = "
                f"{settings.uncommitted_state_bytes_max}): raise it, or shorten checkpoint_interval_ms = "
                f"{settings.checkpoint_interval_ms}",
                task=self.wiring.name,
                setting="uncommitted_state_bytes_max",
                code=HaltCode.OUTPUT_TOO_LARGE,
            )
        behind = lag and self.wiring.is_source and self.backpressure.behind(self.mono_ms())
        return "downstream_lag_messages_max" if behind else None
