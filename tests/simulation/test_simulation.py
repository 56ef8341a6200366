"""The simulator over the real core: fresh seeds are clean, rare things happen, known mistakes die, runs repeat."""

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from framework.simulation.__main__ import command, main
from framework.simulation.batch import hunt, run_batch
from framework.simulation.counters import SOMETIMES
from framework.simulation.invariants import INVARIANTS
from framework.simulation.mutants import MUTANTS
from framework.simulation.mutants.registry import unchanged
from framework.simulation.run import run_seed
from framework.simulation.world import make_plan

ROOT = Path(__file__).parents[2]
FRESH = 150
# Too rare for a batch of this size; the batch of 1,000 seeds that docs/SIMULATION.md tells of has them.
RARE = {
    "lost acknowledgements of a commit that lost",
    "claim messages refused by the fence",
    "roll backs during a commit",
}

DIGESTS = "from framework.simulation import run_seed; print([(r.digest, r.steps) for r in map(run_seed, (3, 40, 77))])"


def _digests(hash_seed: str) -> str:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True)
    return run.stdout


def test_a_seed_is_the_same_run_everywhere() -> None:
    """The same seed gives the same digest in two processes whose hashes differ, so a failure can be repeated."""
    assert _digests("1") == _digests("2")


def test_different_seeds_are_different_runs() -> None:
    """A digest covers what happened: no two of some seeds share one."""
    assert len({run_seed(seed).digest for seed in range(5)}) == 5


def test_fresh_seeds_are_clean_and_rare_things_happen() -> None:
    """Seeds that nobody has run before break no invariant, with 5 faults each or more, and meet the rare situations."""
    first = int(os.environ.get("GRETE_SEED", random.randrange(1 << 40)))
    print(f"seeds {first}..{first + FRESH}")  # noqa: T201  what a failure needs; also in its text
    batch = run_batch(range(first, first + FRESH))
    assert [f"{result.violation}; repeat: {command(result.seed)}" for result in batch.failures] == []
    assert batch.faults >= 5 * batch.seeds
    assert [name for name in SOMETIMES if not batch.counters[name] and name not in RARE] == []


@pytest.mark.timeout(600)  # the rarest takes hundreds of seeds
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutants_die(name: str) -> None:
    """Each known mistake is found within a bounded number of seeds, on an invariant that is named for it."""
    kill = hunt(name)
    assert kill.expected, f"{name} ({MUTANTS[name].mistake}): {kill}"


@pytest.mark.parametrize("name", sorted(name for name, each in MUTANTS.items() if each.focus is not unchanged))
def test_a_world_in_focus_is_clean_without_the_mistake(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant dies of its mistake, not of the world that was made to show it."""
    each = MUTANTS[name]
    monkeypatch.setitem(MUTANTS, name, replace(each, make=lambda original: original))
    seeds = [seed for seed in range(40) if each.shows(make_plan(seed))]
    assert [str(result.violation) for result in map(run_seed, seeds, [name] * len(seeds)) if result.violation] == []


def test_mutants_are_named_for_invariants_that_exist() -> None:
    """A mutant can only be expected to die on an invariant that somebody checks."""
    assert {name for mutant in MUTANTS.values() for name in mutant.killed_by} <= set(INVARIANTS)


def test_a_mutant_is_gone_after_its_run() -> None:
    """Patching a mistake into a class leaves nothing behind: the next run is the clean one."""
    clean = run_seed(1)
    assert run_seed(1, "marker_before_commit").violation is not None
    after = run_seed(1)
    assert after.violation is None
    assert after.digest == clean.digest


def test_a_failure_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line prints seed, invariant, faults, the last messages and the command, and returns 1."""
    assert main(["--seeds", "1", "--mutant", "marker_before_commit"]) == 1
    out = capsys.readouterr().out
    assert "marker:" in out
    assert "commit g1" in out
    assert "python -m framework.simulation --seeds 1 --mutant marker_before_commit" in out


def test_a_failure_travels_between_processes() -> None:
    """A violation found in another process arrives whole, not as a broken pool."""
    batch = run_batch(range(2), "marker_before_commit", processes=2)
    assert [result.violation.name for result in batch.failures if result.violation is not None] == ["marker"] * 2
    assert all(str(result.violation).startswith("marker: ") for result in batch.failures)


def test_clean_seeds_return_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line returns 0 for clean seeds, also from several processes, and shows what happened."""
    assert main(["--seeds", "0..8", "--processes", "2"]) == 0
    assert "8 seeds" in capsys.readouterr().out


def test_a_mistyped_range_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A range of seeds that is none ends with usage, not with a traceback."""
    with pytest.raises(SystemExit) as refused:
        main(["--seeds", "1-8"])
    assert refused.value.code == 2
    assert "need A..B" in capsys.readouterr().err
