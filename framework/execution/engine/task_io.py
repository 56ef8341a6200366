"""The environment of one task: its log, its store, its settings and its clocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from grete.api.tasks.context import wall_clock_us
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.task_code.ports import CommitTracing, SpillStore
from grete.execution.task_code.record_times import InputTimes
from grete.ports import Log, StateStore
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay


@dataclass(frozen=True, slots=True)
class TaskIO:
    """The inputs, outputs and clock of one task. ``mono_ms`` is a clock that only goes forward."""

    log: Log
    store: StateStore
    overlay: Overlay
    spill: SpillStore
    settings: Settings
    mono_ms: Callable[[], float]
    times: InputTimes | None = None  # how the inputs tell time, if not as by default
    priorities: Mapping[str, int] = field(default_factory=dict)  # by topic from outside; 0 where it is not in there
    wall_us: Callable[[], int] = wall_clock_us
    commit_spans: CommitTracing | None = None
    gathers: bool = False  # whether outputs to tasks behind may wait for more, where that changes no result
    joint: JointProgress | None = None  # with which a deterministic task announces its progress; None: alone

    @property
    def wall_ms(self) -> int:
        """The wall clock, in ms since 1970."""
        return self.wall_us() // 1_000
