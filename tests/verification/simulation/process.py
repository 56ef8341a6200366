"""A task in a simulated process: the real core, driver and overlay over a simulated log, store and spill."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from grete.core.deterministic.task import DeterministicCore
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import StartupPhase, TaskStatus
from grete.execution.build import aligned_driver, deterministic_driver, store_names
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.task_io import TaskIO
from grete.execution.timing.event_time import AFTER_ALL
from grete.ports import Write
from grete.protocol.changelog_position import decode_changelog_position
from tests.verification.simulation.boundary import Ambush
from tests.verification.simulation.calls_kind import SimCaller
from tests.verification.simulation.core import SimCore, check_steps, check_turns
from tests.verification.simulation.disk import Host, SimOverlay, SimSpill, SimStore
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import Recorder
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.priorities import check_priorities
from tests.verification.simulation.runners import Recording, aligned_processor, logical_processor
from tests.verification.simulation.sink import SimEarlySink, SimSink, SlowSteps
from tests.verification.simulation.stage_codes import StageCode, stage_code
from tests.verification.simulation.step_text import tell_steps
from tests.verification.simulation.steps import Step
from tests.verification.simulation.usercode import stage_graph
from tests.verification.simulation.worker import Worker

OUTPUT_BYTES_MAX = 1 << 24  # of an aligned checkpoint


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of all processes of a world."""

    plan: Plan
    log: SharedLog
    checker: Checker
    recorder: Recorder
    now: Callable[[], int]
    draw: Callable[[], int]
    ambush: Ambush
    changed: set[int] = field(default_factory=set)  # tasks whose code makes other outputs than it did
    tell: Callable[[str], None] | None = None  # takes a line for each event and action of each core
    checked: bool = True  # whether each core checks its state after each step


class Process:
    """A task in a process, on a host. Its monotonic clock starts elsewhere than those of others.

    ``wiring``: the task's in the graph that the process has; ``refused``: it is one that a start must refuse.
    """

    def __init__(
        self,
        around: Surroundings,
        task: int,
        number: int,
        host: Host,
        wiring: TaskWiring,
        worker: "Worker[Process]",
        *,
        refused: bool = False,
    ) -> None:
        plan = around.plan
        self.worker = worker
        self.owner = len(worker.owners)
        worker.owners.append(task)
        worker.tasks.append(self)
        self.task = task
        self.nonce = crc32(b"%d" % number).to_bytes(16, "big")
        self.number = number
        self.host = host
        self.wiring = wiring
        self.refused = refused
        self.name = f"{self.wiring.name}#{number}"
        self.boundary, self.log = worker.boundary, worker.log
        self.recorded = False  # its counters were added up
        self.lurks = False  # it makes its claim when another process of its task claims for a rollback
        self.sink_steps = SlowSteps(around.now, around.draw, around.plan.unkind.sink_ms)
        self._seen: Counter[str] = Counter()
        self._caller = SimCaller(around.plan.seed, number, around.now, self._seen)
        self._around = around
        self._disk = host.disk
        self._born = around.now() - number * 1000
        code = stage_code(plan, task)
        stores = store_names(stage_graph(code))
        self.store = SimStore(stores, host, self.boundary, self._written)
        self.overlay = SimOverlay(
            self.store,
            list(stores),
            uncommitted_state_bytes_max=plan.limits.uncommitted_state_bytes_max,
            read_cache_bytes_max=plan.settings.read_cache_bytes_max,
            expiring=stage_graph(code).expiring_ids(),
        )
        self.overlay.chunk_keys = plan.knobs.chunk_keys
        self.core: SimCore | DeterministicCore
        self.driver: TaskDriver
        self.core, self.driver = self._deterministic(code) if code.deterministic else self._aligned(code)
        if priorities := stage_graph(code).priorities():
            check_priorities(self.driver.parts.inputs.reader, self.name, priorities, self._seen)
        host.in_use = True
        if around.checked:
            check_steps(self.core, self.name)
            check_turns(self.driver, self.name)
        if around.tell is not None:
            names = {wiring.producer: wiring.name for wiring in plan.wirings.values()}
            tell_steps(self.core, self.name, names.__getitem__, around.tell)

    def _aligned(self, code: StageCode) -> tuple[SimCore, TaskDriver]:
        plan, checker = self._around.plan, self._around.checker
        core = SimCore(self.wiring, plan.limits, aligned=plan.aligned)
        sink = SimSink(self.boundary, partial(checker.files.has, self.task), partial(checker.files.applied, self.task))
        executor = self.sink_steps if code.files and plan.unkind.sink_ms else None
        runner = aligned_processor(plan, self.task, code, self.overlay, sink, executor, self._caller)
        runner.recording = self._recording
        return core, aligned_driver(self.owner, core, runner, self._io(code))

    def _deterministic(self, code: StageCode) -> tuple[DeterministicCore, TaskDriver]:
        plan = self._around.plan
        releases = bool(code.external) and plan.settings.output_delivery == "transactional"
        early = plan.settings.sink_delivery == "early"
        pace_ms = 4 * plan.settings.progress_interval_ms if plan.joint and self.wiring.outputs else 0
        core = DeterministicCore(self.wiring, plan.limits, releases=releases, durable=early, pace_ms=pace_ms)
        sink = SimEarlySink(self.boundary, partial(self._around.checker.early_account, self.task))
        executor = self.sink_steps if code.files and plan.unkind.sink_ms else None
        runner = logical_processor(plan, self.task, code, self.overlay, sink, executor, self._caller)
        runner.recording = self._recording
        return core, deterministic_driver(self.owner, core, runner, self._io(code))

    @property
    def _recording(self) -> Recording:
        suffix = b"!" if self.task in self._around.changed else b""
        return Recording(self._froze, self._around.draw, self._seen, suffix, self._took)

    def _io(self, code: StageCode) -> TaskIO:
        """Return the log, the stores and the settings of the task; at a limit of outputs it would halt."""
        settings = msgspec.structs.replace(self._around.plan.settings, uncommitted_state_bytes_max=OUTPUT_BYTES_MAX)
        spill, priorities = SimSpill(self.boundary), stage_graph(code).priorities()
        return TaskIO(
            self.log,
            self.store,
            self.overlay,
            spill,
            settings,
            self._mono_ms,
            priorities=priorities,
            wall_us=lambda: self._around.now() * 1_000,
            gathers=self._around.plan.gathers,
            joint=self.worker.joint if self._around.plan.joint and code.deterministic and self.wiring.outputs else None,
        )

    def _mono_ms(self) -> int:
        return self._around.now() - self._born

    def _took(self, step: Step) -> None:
        if self._around.plan.settings.processing_guarantee == "none":
            self._around.recorder.took(self.task, step)

    def _froze(self, checkpoint_id: int, steps: list[Any]) -> None:
        self._around.recorder.froze(self.task, self.nonce, self.core.generation, checkpoint_id, steps)

    def _written(self, writes: Sequence[Write], changelog_position: bytes | None) -> None:
        committed = self.core.commits.committed
        checkpoint_id = -1 if committed is None else committed.checkpoint_id
        self._around.checker.stored(self.task, checkpoint_id, self._disk, writes, changelog_position)

    def start(self, wall_ms: int) -> None:
        """Begin as a real process does."""
        if self._around.plan.in_transactions(self.task):
            position = self.store.changelog_position()
            committed = -1 if position is None else decode_changelog_position(position).offset
            self.log.transactional(self.wiring.changelog, committed)
        self.driver.start(nonce=self.nonce, host=f"host{self.host.number}", pid=self.number, wall_ms=wall_ms)
        ends = {partition: self._around.log.partition(partition).end for partition in self.wiring.bootstrap}
        self._around.checker.start_ends.started(self.task, self.nonce, ends)

    def counted(self) -> Counter[str]:
        """Return the counters of core, driver and start."""
        counted = Counter(self.core.seen) + Counter(self.driver.parts.counters)
        counted += self._seen
        counted["checkpoints of many slices"] = self.overlay.large
        counted["wipes of what was there"] += self.store.wiped_content
        if self.core.status not in (TaskStatus.STARTING, TaskStatus.GENESIS):
            start = self.core.start_up
            counted["redos over later commits"] += not start.restored and start.segments > 0
            counted["restores from within the log"] += start.restored and start.fold.start > 0
        return counted

    @property
    def rolls_back(self) -> bool:
        """Whether a producer has taken back some of what the task has read."""
        return isinstance(self.core, SimCore) and self.core.inputs.taken_back

    @property
    def has_ended(self) -> bool:
        """Whether all that the task reads has ended, as far as it knows."""
        return self.driver.parts.runner.watermark == (AFTER_ALL, True)

    @property
    def is_drained(self) -> bool:
        """Whether the inputs of the task have ended, and it has done nothing since its last commit."""
        committed = self.core.commits.committed
        rests = self.has_ended and self.driver.mode.closed_all
        return rests and committed is not None and committed.checkpoint_id == self.core.frozen

    @property
    def paused(self) -> bool:
        """Whether its process does nothing."""
        return self.worker.paused

    @property
    def about_to_claim(self) -> bool:
        """Whether the claim is what comes next, and nothing of it was sent."""
        return self.core.start_up.phase is StartupPhase.CLAIMING and bool(self.driver.parts.todo)

    @property
    def reclaiming(self) -> bool:
        """Whether a claim for a rollback is on its way."""
        return self.core.status is TaskStatus.RECLAIMING

    @property
    def restoring(self) -> bool:
        """Whether the process has a claim ahead of it, or a changelog to read."""
        return self.core.status is TaskStatus.STARTING

    def close(self, rand: Callable[[], float]) -> None:
        """The process is gone."""
        self.store.crash(rand)
        self.host.in_use = False
