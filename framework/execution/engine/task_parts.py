"""The parts that a driver and its mode share: the core and its requests, the log, the user's code."""

from collections import Counter, deque
from collections.abc import Callable

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import StartupPhase
from grete.core.ports import Core
from grete.errors import Halted, OffsetOutOfRange
from grete.execution.changelog.commit_times import CommitTimes
from grete.execution.engine.pending_sends import PendingSends
from grete.execution.engine.task_inputs import TaskInputs
from grete.execution.engine.task_io import TaskIO
from grete.execution.inputs.backpressure import Backpressure
from grete.execution.task_code.ports import Runner
from grete.execution.timing.timers import NEVER
from grete.halts import HaltCode

SINK = "sink"  # what holds a task that has not seen its sink yet
COVERED_TOKEN = -2  # token of data messages: their commit's delivery covers them (port contract 1)


class TaskSends:
    """The messages that one task sends. ``urgent``: what was sent should leave at once, as a task waits for it."""

    def __init__(self, wiring: TaskWiring, io: TaskIO) -> None:
        self.pending = PendingSends(wiring.name, io.settings.send_timeout_ms)
        lag_max = io.settings.downstream_lag_messages_max
        self.backpressure = Backpressure(io.log, wiring.outputs, lag_max, wiring.tasks)
        self.urgent = False
        self.held_by: str | None = None  # the bound because of which no input was taken when that was last asked


class TaskParts:
    """One task of this process. ``owner`` marks its deliveries."""

    def __init__(self, owner: int, core: Core, runner: Runner, io: TaskIO) -> None:
        self.owner, self.core, self.runner, self.io = owner, core, runner, io
        self.todo: deque[do.Action] = deque()
        self.steps = 0  # of the core
        self.ready = False  # the state is restored: code may run
        self.when_ready: Callable[[], None] = lambda: None
        self.counters: Counter[str] = Counter()
        self.commit_times = CommitTimes(io.mono_ms, io.commit_spans)
        self.inputs = TaskInputs(core, runner, io)
        self.sends = TaskSends(core.task, io)

    @property
    def wiring(self) -> TaskWiring:
        """Its place in the graph, in numbers."""
        return self.core.task

    def tell(self, event: on.Event) -> None:
        """Tell the core; what it asks for comes after what it has asked for before."""
        self.todo.extend(self.core.step(event))
        self.steps += 1
        self.commit_times.follow(self.core.commits)
        if not self.ready and self.core.start_up.phase is StartupPhase.DONE:
            self.ready = True
            self.runner.reset()
            self.when_ready()

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns of a task."""
        assert self.ready == self.core.start_up.done, f"{self.wiring.name}: code may run before the state is restored"
        self.sends.pending.check_invariants()
        self.inputs.reader.check_invariants()

    @property
    def wall_timer_in_ms(self) -> float:
        """The ms until a wall-clock timer is due: 0 or less if one is."""
        wall = self.runner.wall
        return NEVER if wall is None or wall.due == NEVER else wall.due - self.io.wall_ms

    def tell_input_gone(self, error: OffsetOutOfRange) -> None:
        """Tell the core that what comes next of an input is not in the log any more.

        A task that is not fenced ends. For an external input it halts; of a stream the next start judges what is lost.
        """
        if error.partition in self.inputs.internal:
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
        news = False
        for partition in self.inputs.new_ends():
            position = self.core.external.position[partition]
            self.tell(on.ExternalProcessed(partition, position, True, self.io.overlay.open_bytes))
            news = True
        return news

    def blocked(self, *, lag: bool = True) -> bool:
        """Whether to stop consuming: too much unacknowledged or held back, or consumers too far behind (A8, B1).

        ``lag``: False leaves the consumers out.
        """
        self.sends.held_by = self._bound(lag=lag)
        return self.sends.held_by is not None

    def _bound(self, *, lag: bool) -> str | None:
        """Return the setting whose bound is reached, "sink" for one that was not seen yet; None: no bound is."""
        settings, held, outbox = self.io.settings, self.runner.external_bytes, self.runner.outbox
        if self.sends.pending.bytes > settings.unacked_bytes_max:
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
        behind = lag and self.wiring.is_source and self.sends.backpressure.behind(self.io.mono_ms())
        return "downstream_lag_messages_max" if behind else None
