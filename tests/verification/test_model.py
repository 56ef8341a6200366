"""Small jobs explored in full over the real core: all is well, and the design document's literal rules are not."""

import pytest

from tests.verification.model.__main__ import main
from tests.verification.model.counterexamples import COUNTEREXAMPLES, opened
from tests.verification.model.process import Process, Store
from tests.verification.model.search import explore
from tests.verification.model.system import System
from tests.verification.model.trace_text import told
from tests.verification.model.world import CHAIN, SHARED, SLICE, Bounds, World
from tests.verification.simulation.mutants.registry import applied
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.rules import INVARIANTS

SMALL = World("chain", CHAIN, Bounds(crashes=1))

# Rare things that must have happened somewhere in a world, or exploring it would show little.
SOMETIMES = {
    "chain": {
        "fenced",
        "tails verified",
        "stale rollback markers",
        "rollback markers ahead of the task",
        "restores",
        "redos",
    },
    "chain, two checkpoints": {"early records", "rollbacks during a commit"},
    "diamond": {"rollbacks", "rolled-back records dropped", "rollback markers ahead of the task"},
    "shared": {"rollbacks", "rolled-back records dropped"},
    "joined, no buffer": {"early frames skipped", "seeks back"},
    "routed": {"rollbacks", "rolled-back records dropped"},
    "table": {"rollbacks", "restores", "redos"},
}


@pytest.mark.parametrize("name", sorted(SLICE))
def test_every_interleaving_of_a_small_job_is_clean(name: str) -> None:
    """All states within the bounds keep all invariants, and from each all checkpoints get committed (C, A, R)."""
    system = System(SLICE[name])
    report = explore(system)
    assert str(report.violation) == "None"
    assert report.complete
    assert report.at_rest > 0
    assert SOMETIMES[name] - system.seen == set()


def test_a_table_whose_end_is_forgotten_is_found_out() -> None:
    """A task that goes on from a commit and does not know where its table ended takes a stream's record first (A2c)."""
    with applied("bootstrap_end_forgotten"):
        report = explore(System(SLICE["table"]), only="first")
    assert report.violation is not None
    assert report.violation.name == "first"


def test_an_alignment_of_the_own_number_is_found_out() -> None:
    """A task alone in its stage that awaits one producer of two freezes before the other has committed (A6)."""
    with applied("alignment_of_the_own_number"):
        report = explore(System(SLICE["shared"]), only="closure")
        assert explore(System(SLICE["chain"]), only="closure").violation is None
    assert report.violation is not None
    assert report.violation.name == "closure"


@pytest.mark.parametrize("name", sorted(COUNTEREXAMPLES))
def test_a_literal_rule_is_found_out(name: str) -> None:
    """Each counterexample of the design document breaks the invariant named for it.

    Without it the same world is clean.
    """
    counterexample = COUNTEREXAMPLES[name]
    assert explore(System(counterexample.world)).violation is None
    with opened(name):
        report = explore(System(counterexample.world, reduced=False), only=counterexample.invariant)
    assert report.violation is not None, f"{name} ({counterexample.says}) was not found"
    assert report.violation.name == counterexample.invariant
    assert report.path


@pytest.mark.parametrize("name", sorted(COUNTEREXAMPLES))
def test_leaving_out_orders_of_what_commutes_hides_no_counterexample(name: str) -> None:
    """The reduction finds every counterexample, too: it leaves out orders, not outcomes."""
    with opened(name):
        assert explore(System(COUNTEREXAMPLES[name].world), only=COUNTEREXAMPLES[name].invariant).violation is not None


@pytest.mark.parametrize(
    "world", [SMALL, World("shared", SHARED, Bounds(records=1, checkpoints=1))], ids=lambda world: world.name
)
def test_leaving_out_orders_of_what_commutes_loses_no_end(world: World) -> None:
    """With and without the reduction a world comes to rest in the same states."""
    ends = [_ends(System(world, reduced=reduced)) for reduced in (True, False)]
    assert ends[0] == ends[1]
    assert ends[0]


def _ends(system: System) -> set[tuple[object, ...]]:
    """Return the logs of all states in which nothing is left to do."""
    first = system.initial()
    seen, todo = {first}, [first]
    ends: set[tuple[object, ...]] = set()
    while todo:
        state = todo.pop()
        after = [system.after(state, move) for move in system.moves(state)]
        if not after:
            ends.add(tuple(system.log(state)))
        todo += [each for each in dict.fromkeys(after) if each not in seen]
        seen.update(after)
    return ends


def test_a_bound_that_was_hit_is_said() -> None:
    """A search that gave up does not claim to be complete."""
    report = explore(System(SMALL), states_max=20)
    assert not report.complete
    assert report.violation is None


def test_a_violation_is_told_by_a_shortest_way() -> None:
    """A counterexample's story begins with the world at rest and ends with what is wrong; no shorter one exists."""
    with opened("zombie_commit"):
        system = System(COUNTEREXAMPLES["zombie_commit"].world, reduced=False)
        report = explore(system)
    trace_text = list(told(system, report.path))
    assert "processes its record" in trace_text[0]
    assert "commit of checkpoint 1" in trace_text[-1]
    assert len(trace_text) == 7


def test_a_process_is_a_value() -> None:
    """A process that was frozen and brought back is the same, and goes on in the same way."""
    one = Process(SMALL, 0, 1, Store())
    one.start(())
    frozen = one.freeze()
    two, three = (Process.thaw(SMALL, 0, frozen) for _ in range(2))
    assert one.digest() == two.digest()
    two.sent(one.wiring.changelog, 0, (two.queues[one.wiring.changelog][0].row,))
    assert two.digest() != three.digest() == one.digest()


def test_a_counterexample_is_closed_again() -> None:
    """Following a literal rule for a while leaves nothing behind, not even when it failed."""
    with pytest.raises(Violation, match="of our own"), opened("rollback_marker_loop"):
        raise Violation("error", "of our own")
    assert explore(System(SMALL)).violation is None


def test_counterexamples_are_named_for_invariants_that_exist() -> None:
    """A counterexample can only be expected to show on an invariant that the simulator knows, too."""
    assert {counterexample.invariant for counterexample in COUNTEREXAMPLES.values()} <= set(INVARIANTS)


def test_the_command_says_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line explores a world, prints its figures, and returns 0."""
    assert main(["--world", "routed"]) == 0
    assert "complete" in capsys.readouterr().out


def test_the_command_says_bound_hit(capsys: pytest.CaptureFixture[str]) -> None:
    """A world that was not explored in full is no success."""
    assert main(["--world", "routed", "--states-max", "10"]) == 1
    assert "bound hit" in capsys.readouterr().out


def test_its_table_is_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """A world's name, its bounds and its result are on one line, however wide that is: no column is cut."""
    main(["--world", "routed", "--states-max", "10"])
    [row] = [line for line in capsys.readouterr().out.splitlines() if "bound hit" in line]
    assert f"routed │ {SLICE['routed'].bounds} │" in row


def test_the_command_tells_a_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line tells the literal rule, what is missing, the invariant and the way, and returns 0: found."""
    assert main(["--counterexample", "rollback_marker_loop"]) == 0
    out = capsys.readouterr().out
    assert "R4" in out
    assert "liveness: b-0 generation 4" in out
    assert "a-0#1 crashes" in out


def test_a_world_without_wide_bounds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A world that does not exist within the bounds that were asked for ends with usage."""
    with pytest.raises(SystemExit) as refused:
        main(["--world", "long chain"])
    assert refused.value.code == 2
    assert "wide bounds" in capsys.readouterr().err
