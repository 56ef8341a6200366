"""The corpus of tasks that are not deterministic: who catches which, as docs/NONDETERMINISM.md says."""

from pathlib import Path

import pytest

from benchmarks import results
from tests.verification.nondeterminism.measure import BY_CHANCE, Caught, corpus, described, measure, tables, warned

SAMPLE = 10  # each tenth case runs in a worker here; the command runs all of them


def kept() -> dict[str, Caught]:
    """Return the checks that caught each case in the run that the page shows."""
    cells = results.read("nondeterminism").cells
    return {cell["case"]: Caught(*(cell[name] for name in Caught._fields)) for cell in cells}


def test_each_case_is_described_and_measured() -> None:
    """A case says what it depends on and why that differs. The page has the results of all cases and of no other."""
    cases = corpus("cases") + corpus("near_misses")
    assert [case for case in cases if not all(described(case))] == []
    assert sorted(kept()) == sorted(cases)
    assert len(corpus("cases")) >= 40
    assert tables(kept()) == results.read("nondeterminism").runs[0].tables


@pytest.mark.parametrize("kind", ["cases", "near_misses"])
def test_the_warnings_are_those_of_the_page(kind: str) -> None:
    """The start of a worker warns of the same cases as in the last run."""
    assert {case: bool(warned(case)) for case in corpus(kind)} == {
        case: caught.warned for case, caught in kept().items() if case.startswith(kind)
    }


@pytest.mark.chaos
def test_what_was_caught_is_caught_again(tmp_path: Path) -> None:
    """In killed workers and in a replay: a case that once was noticed is, but by chance; a near miss never is."""
    cases = (corpus("cases") + corpus("near_misses"))[::SAMPLE]
    before = kept()
    found = measure(cases, tmp_path)
    chance = {f"cases/{name}" for name in BY_CHANCE}
    assert chance <= set(before)
    for case in set(cases) - chance:
        now, then = found[case], before[case]
        assert (case, now.warned, now.checked, now.halted) == (case, then.warned, then.checked, then.halted)
