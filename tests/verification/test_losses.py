"""At most once in the simulator: what is committed and outside is a run without failures over what was not skipped."""

from typing import Any

import pytest

from grete.execution.held_input import HeldInput
from tests.verification.simulation.losses import run_losing
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.scheduler import Simulation

SEEDS = range(33_100_000, 33_100_012)


def _run(*, stopped: bool = False) -> list[Simulation]:
    return [found for seed in SEEDS if (found := run_losing(seed, stopped=stopped)) is not None]


def test_a_record_that_is_skipped_leaves_nothing_behind_in_any_stage() -> None:
    """Processes die and sleep, messages come late: only a source's successor skips, and exactly what is committed."""
    worlds = _run()
    assert len(worlds) > len(SEEDS) // 2
    assert sum(world.checker.seen["records skipped"] for world in worlds) > 10


def test_a_graceful_stop_skips_nothing() -> None:
    """A source commits what it has read and what comes of it before it ends."""
    worlds = _run(stopped=True)
    assert sum(world.seen["graceful stops"] for world in worlds) > len(worlds)
    assert sum(world.checker.seen["records skipped"] for world in worlds) == 0


def test_input_that_runs_before_its_positions_are_committed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint's commit may then be lost with it, and a successor would process it again."""

    def take(held: HeldInput, *read: Any) -> None:
        held._covered.append(read)
        held._counts[read[0]] += 1

    monkeypatch.setattr(HeldInput, "take", take)
    with pytest.raises(Violation, match="at most once"):
        _run()
