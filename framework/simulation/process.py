"""One simulated process: the real core, driver and overlay of one task over a simulated log, store and spill."""

from collections import Counter
from collections.abc import Callable

from framework.core.task import Status, TaskCore
from framework.runtime.driver import TaskDriver
from framework.simulation.boundary import Boundary
from framework.simulation.disk import Host, SimOverlay, SimSpill, SimStore
from framework.simulation.invariants import Checker
from framework.simulation.log import SharedLog, SimLog
from framework.simulation.oracle import Recorder
from framework.simulation.usercode import STORES, SimRunner, Step, stage_code
from framework.simulation.world import Plan


class Process:
    """A task's process on a host. ``born``: the mono clock's zero, which differs from process to process."""

    def __init__(
        self, plan: Plan, task: int, number: int, host: Host, nonce: bytes, shared: SharedLog, checker: Checker, recorder: Recorder,
        *, now: Callable[[], int], draw: Callable[[], int],
    ) -> None:
        self.task = task
        self.nonce = nonce
        self.number = number
        self.host = host
        self.name = f"{plan.wirings[task].name}#{number}"
        self.boundary = Boundary()
        self.log = SimLog(shared, self.boundary)
        self.started = False
        self.paused = False
        self.recorded = False  # its counters were added up
        self.stop_by = 0  # time at which a graceful stop is given up; 0: none was asked for
        self.wake_at = 0  # step at which a paused process goes on
        born = now() - number * 1000
        self.wiring = plan.wirings[task]
        self.core = TaskCore(self.wiring, plan.limits, aligned=plan.aligned)
        core = self.core
        self.store = SimStore(
            host.disk,
            self.boundary,
            lambda writes, pointer: checker.stored(
                task, -1 if core.committed is None else core.committed.version, host.disk, writes, pointer
            ),
        )
        self.overlay = overlay = SimOverlay(
            self.store, list(STORES), layer_bytes_max=plan.limits.layer_bytes_max, clean_bytes_max=plan.settings.clean_bytes_max
        )
        overlay.chunk_keys = plan.knobs.chunk_keys

        def froze(version: int, steps: list[Step]) -> None:
            recorder.froze(nonce, core.generation, version, steps)

        runner = SimRunner(stage_code(plan, task), overlay, draw, froze)
        self.driver = TaskDriver(
            0, core, self.log, self.store, overlay, SimSpill(self.boundary), runner, plan.settings, lambda: now() - born
        )
        host.in_use = True

    def start(self, wall_ms: int) -> None:
        """Begin as a real process does."""
        self.started = True
        self.driver.start(nonce=self.nonce, host=f"host{self.host.number}", pid=self.number, wall_ms=wall_ms)

    def counted(self) -> Counter[str]:
        """Return what core, driver and start have counted."""
        counted = Counter(self.core.seen) + Counter(self.driver.counters)
        counted["wipes of what was there"] += self.store.wiped_content
        if self.core.status not in (Status.STARTING, Status.GENESIS):
            start = self.core.start_up
            counted["redos over later commits"] += not start.bootstrapped and start.segments > 0
            counted["bootstraps from within the log"] += start.bootstrapped and start.fold.start > 0
        return counted

    @property
    def restoring(self) -> bool:
        """Whether the process has a claim ahead of it, or a changelog to read."""
        return self.core.status is Status.STARTING

    def close(self, rand: Callable[[], float]) -> None:
        """The process is gone."""
        self.store.crash(rand)
        self.host.in_use = False
