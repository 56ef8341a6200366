"""Seeds of the simulator that have found something are clean now."""

import time
from dataclasses import replace

import pytest

from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.run import run_seed

pytestmark = pytest.mark.check  # the simulator on what has been wrong once: each change of the core is to see it


@pytest.fixture(autouse=True)
def no_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to sleep: what waits in a world lets the world's clock go on."""

    def refused(seconds: float) -> None:
        raise AssertionError(f"a simulated task sleeps {seconds} s for real")

    monkeypatch.setattr(time, "sleep", refused)


@pytest.mark.parametrize(
    "seed",
    [
        *(546551727435, 1000009, 578871078110, 1004701, 1003396, 20005079, 2407014944),
        *(30400307, 31002993, 398865740877, 759842782476, 77100186, 32000203, 33000336, 33001874, 33003872),
        *(33005966, 33009866, 216994290821, 216994290823, 33100602),
    ],
)
def test_seeds_that_have_found_something_are_clean(seed: int) -> None:
    """A commit acknowledged in doubt (C5); a damage on the last step in which faults happen.

    A task ends twice, and sends in between: its consumer was told once (30400307).
    At least once, a job is drained once its inputs are committed (31002993), and nothing old is repeated behind the
    ends of channels (398865740877, 759842782476).
    A standby names no commit while its store may be ahead of it, after a redo that was cut short (77100186): 0084.
    A reader waits for a minute for what the log has acknowledged and lost, also in a world of seconds (32000203).
    Sources rest only where each task behind them has one beside it: one without has an input of its own (33000336).
    A task that does nothing because its inputs have ended has nothing to commit (33001874, 33003872).
    The end of an input stays known when the marker of an older checkpoint comes late (33005966).
    A process that is replaced need not learn it while it has nothing to commit (33009866).
    A task that stops before it has committed says the marker of what it went back to (216994290821, 216994290823).
    Of a batch that failed, records behind timers that are left come again (33100602).
    """
    assert run_seed(seed).violation is None


@pytest.mark.parametrize(
    "seed",
    [
        *(6, 9, 20001631, 20000300, 20018091, 720085, 448167069798, 30000128, 40000000, 50000453, 50000904, 80000223),
    ],
)
def test_deterministic_seeds_that_have_found_something_are_clean(seed: int) -> None:
    """External content is state (6), and timers fire before a first progress message (9): decision 0015.

    Zombies come back (720085): decision 0021. A log loses a watermark, which has no number (448167069798): 0029.
    A task commits before the records come again whose results it has from the log (30000128): 0056.
    A standby leaves out nothing that comes during its catch-up (40000000): 0084.
    A commit that cuts a decision short keeps how far time was in its records (50000453, 50000904): 0107.
    A run knows the ends of its inputs from a while ago, and a transaction has ended since (80000223): 0102.
    """
    assert run_seed(seed, world="deterministic").violation is None


def test_a_mixed_seed_that_has_found_something_is_clean() -> None:
    """A reader that learns late of a lost acknowledgement has many progress messages to catch up with.

    It takes its time. And a power loss takes watermarks back, but not those that are trimmed (500000249).
    A standby waits for a commit that its store has and readers see late (77100035): 0084.
    A watermark that the log repeats behind the marker of its checkpoint is known (2601999).
    """
    assert run_seed(1953, world="mixed").violation is None
    assert run_seed(500000249, world="mixed").violation is None
    assert run_seed(77100035, world="mixed").violation is None
    assert run_seed(2601999, world="mixed").violation is None


def test_a_task_that_is_killed_on_its_way_to_a_damage_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks read an input that was thinned: one halts at once, the other 100 steps later, killed in between.

    The world of a mutant without its mistake.
    """
    name = "decision_digest_ignored"
    monkeypatch.setitem(MUTANTS, name, replace(MUTANTS[name], make=lambda original: original))
    assert str(run_seed(1000133, name).violation) == "None"
