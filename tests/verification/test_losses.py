"""At most once, and without a guarantee, in the simulator: what is committed is a run over what was not skipped."""

from typing import Any

import pytest

from grete.execution.inputs.held_input import HeldInput
from tests.verification.simulation.losses import GUARANTEES, Guarantee, run_losing
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.scheduler import Simulation

# two found something: what was covered ran in pieces of several batches, which are too much for a tight write batch,
# and a task that was asked to stop just before it took a frame ended with the frame's position, and without its record
SEEDS = (*range(33_100_000, 33_100_008), 34_200_007, 34_300_003)


def _run(guarantee: Guarantee, *, stopped: bool = False) -> list[Simulation]:
    return [found for seed in SEEDS if (found := run_losing(seed, guarantee, stopped=stopped)) is not None]


def test_a_record_that_is_skipped_leaves_nothing_behind_in_any_stage() -> None:
    """Processes die and sleep, messages come late: only a source's successor skips, and exactly what is committed."""
    worlds = _run("at-most-once")
    assert len(worlds) >= 4
    assert sum(world.checker.seen["records skipped"] for world in worlds) > 10
    assert sum(world.seen["slices of timers"] for world in worlds) > 50
    assert sum(world.seen["checkpoints closed with timers that are due"] for world in worlds) > 0


def test_without_a_guarantee_no_process_takes_what_another_has_taken() -> None:
    """Dead or asleep, of any stage; and each state is that of the steps that its own commits have."""
    worlds = _run("none")
    assert len(worlds) >= 4
    assert sum(world.seen["commits"] + world.checker.seen["commits"] for world in worlds) > 100


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_graceful_stop_skips_nothing(guarantee: Guarantee) -> None:
    """A task commits what it has read and what comes of it before it ends: all comes out in the end."""
    worlds = _run(guarantee, stopped=True)
    assert sum(world.seen["graceful stops"] for world in worlds) > len(worlds)
    assert not any(world.checker.marks.missing for world in worlds)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_input_that_runs_before_its_positions_are_committed_is_found_out(
    guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint's commit may then be lost with it, and a successor would process it again."""

    def take(held: HeldInput, *read: Any) -> None:
        held._covered.append(read)
        held._counts[read[0]] += 1

    monkeypatch.setattr(HeldInput, "take", take)
    with pytest.raises(Violation, match="at most once"):
        _run(guarantee)
