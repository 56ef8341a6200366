"""``run_seed``: one run from its seed, the same in every process."""

import gc
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from types import ModuleType

from grete.core import standby as standby_core
from grete.core import startup
from grete.core.aligned import closing
from grete.core.changelog import changelog_fold
from grete.core.deterministic import write_ahead
from grete.execution.changelog import changelog_writer, standby, standby_store
from grete.execution.deterministic import outputs as logical_outputs
from grete.execution.engine import checkpoint_asks
from grete.execution.records import outputs
from grete.execution.sinks import sink_account
from grete.execution.task_code import firing
from grete.logs import partition_reader
from grete.protocol.commit import decode_commit
from tests.verification.simulation import invariants
from tests.verification.simulation.mutants import MUTANTS, applied
from tests.verification.simulation.mutants.registry import unchanged
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.plan import WHOLE, Cut, Knobs, Plan, World
from tests.verification.simulation.scheduler import Simulation
from tests.verification.simulation.world import make_plan

DECODE = "decode_commit"
TIME = "time"  # the module, as the reader of partitions has it
PATIENCE = 10  # in place of REST, beside a mistake: a task that will never go on is not waited for as long
Tell = Callable[[str], None] | None


@dataclass(slots=True)
class Result:
    """The result of a run. ``digest`` covers every message, fault and end of a process, in order."""

    seed: int
    shape: str
    digest: str
    steps: int
    cut: Cut
    faults: list[str]  # those that happened, in words
    happened: tuple[int, ...]  # their numbers
    hits: int  # faults that hit something
    counters: Counter[str]
    violation: Violation | None
    world: World = "aligned"  # of the seed's
    trace: list[str] = field(default_factory=list)  # the last lines, if there is a violation or it was asked for


class _Enough(Exception):
    """The run has come to the step that was asked for."""


class _Mistaken(Simulation):
    """A world of a mutant, with its mistake or without it."""

    rest = PATIENCE

    def __init__(self, plan: Plan, tell: Tell, *, checked: bool, until: int) -> None:
        super().__init__(plan, tell, checked=checked)
        self._until = until

    def _one_step(self) -> None:
        if self.time.step >= self._until:
            raise _Enough
        super()._one_step()


@contextmanager
def small_world(knobs: Knobs) -> Iterator[None]:
    """Make the fixed sizes of production small, and what it draws repeatable, for the time of a run."""
    small: dict[tuple[ModuleType, str], object] = {
        (changelog_writer, "REWRITE_SHARE"): knobs.rewrite_share,
        (changelog_writer, "REWRITE_IDLE_BYTES"): knobs.rewrite_idle_bytes,
        (changelog_writer, "MESSAGE_BYTES_MAX"): knobs.data_bytes,
        (startup, "TAIL_MESSAGES"): knobs.tail,
        (standby_core, "TAIL_MESSAGES"): knobs.tail,
        (write_ahead, "FREEZE_PART_BYTES_MIN"): knobs.part_bytes,
        (checkpoint_asks, "SLOW_LOOK_MS"): knobs.look_ms,
        (sink_account, "urandom"): Random(0).randbytes,  # ids of outboxes are in the changelog, so in the digest
        # a write batch of a small world has no room for what memory costs beside keys and values
        (outputs, "HELD_BYTES"): 0,
        (logical_outputs, "HELD_BYTES"): 0,
        (firing, "FIRED_TIMERS"): 2,
        (firing, "SLICE_TIMERS"): 1,
        (standby_store, "STANDBY_WRITE_BYTES"): 4 * knobs.data_bytes,
        (standby_store, "STANDBY_LOAD_BYTES"): 8 * knobs.data_bytes,
        (standby, "STANDBY_LOOK_MS"): 200,
        (closing, "SENT_RECORD_BYTES"): 0,
        # each commit is read some times by tasks and checks: its bytes say all
        **dict.fromkeys(
            [(startup, DECODE), (changelog_fold, DECODE), (invariants, DECODE)], lru_cache(1024)(decode_commit)
        ),
    }
    before = {place: getattr(*place) for place in small}
    try:
        for place, value in small.items():
            setattr(*place, value)
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


class _VirtualTime:
    """In place of ``time`` for a call that waits for its log: the world's clock goes on while it sleeps."""

    def __init__(self, simulation: Simulation) -> None:
        self._time = simulation.time

    def monotonic(self) -> float:
        """Return seconds."""
        return self._time.now / 1_000

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._time.now += max(1, int(seconds * 1_000))


@contextmanager
def _waits_in_virtual_time(simulation: Simulation) -> Iterator[None]:
    before = getattr(partition_reader, TIME)
    setattr(partition_reader, TIME, _VirtualTime(simulation))
    try:
        yield
    finally:
        setattr(partition_reader, TIME, before)


@contextmanager
def _garbage_left() -> Iterator[None]:
    """Look for garbage behind a run: what it makes lives as long as the run does, and a look takes a tenth of it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run_seed(
    seed: int,
    mutant: str | None = None,
    cut: Cut = WHOLE,
    *,
    world: World = "aligned",
    traced: bool = False,
    tell: Tell = None,
    kinder: Callable[[Plan], Plan] = unchanged,
    until: int = sys.maxsize,
) -> Result:
    """Run what is left of a seed. A violation is in the result; an unknown mutant raises KeyError.

    A seed has three worlds: of a job in aligned mode or at least once, of one in deterministic mode, and of one whose
    first stages are deterministic and the others aligned. A mutant lives in one of them. ``tell`` takes a line for each
    event and action of each core, in the form of tests/core/scenarios. ``kinder`` changes the world of a mutant, and
    ``until`` is the step at which its run is over.
    """
    world = world if mutant is None else MUTANTS[mutant].world
    plan = make_plan(seed, cut, world)
    plan = cut.of(plan if mutant is None else kinder(MUTANTS[mutant].focus(plan)))
    violation = None
    with ExitStack() as stack:
        if mutant is not None:
            stack.enter_context(applied(mutant))
        # an older mutant must be found by what it does, not by how the core's state looks on the way
        checked = mutant is None or "core" in MUTANTS[mutant].killed_by
        simulation = Simulation(plan, tell) if mutant is None else _Mistaken(plan, tell, checked=checked, until=until)
        stack.enter_context(small_world(plan.knobs))
        stack.enter_context(_waits_in_virtual_time(simulation))
        stack.enter_context(_garbage_left())
        try:
            _run(simulation)
        except Violation as error:
            violation = error
    counters = simulation.seen + simulation.checker.seen + simulation.log.seen
    return Result(
        seed=seed,
        shape=plan.shape,
        digest=simulation.trace.digest,
        steps=simulation.time.step,
        cut=cut,
        faults=simulation.faults,
        happened=tuple(simulation.happened),
        hits=simulation.hits,
        counters=counters,
        violation=violation,
        world=world,
        trace=simulation.trace.lines() if traced or violation is not None else [],
    )


def _run(simulation: Simulation) -> None:
    """Run it. A mistake of the simulator itself is a violation, too: a batch says on which seed, and goes on."""
    try:
        with suppress(_Enough):
            simulation.run()
    except Violation:
        raise
    except Exception as error:
        raise Violation("simulator", "".join(traceback.format_exception(error, limit=-3))) from error
