"""A third party's back ends against the shipped contracts: a right one passes, a wrong one is told which clause."""

from pathlib import Path

import pytest

BACK_ENDS = (Path(__file__).parent / "third_party.py").read_text()
TESTS = (Path(__file__).parent / "mine.py").read_text()
MISTAKES = {
    "the scan is lazy": (
        "rows = sorted(self._disk.rows.items(), reverse=reverse)",
        "rows = ((place, self._disk.rows.get(place, b'')) for place in sorted(self._disk.rows, reverse=reverse))",
        "TestStore",
        "*ContractBroken: the store breaks its contract: A scan sees the store as of its call: later writes*",
    ),
    "a batch is torn": (
        "self._disk.rows = before",
        "pass",
        "TestStore",
        "*ContractBroken: the store breaks its contract: An error of the iterable passes through as it is, and no*",
    ),
    "a checkpoint counts twice": (
        "if self._id <= self._place.applied.get(self._task, -1):",
        "if False:",
        "TestSink",
        "*ContractBroken: the sink breaks its contract: Two instances apply the same checkpoint, and the first one*",
    ),
}


def played(pytester: pytest.Pytester, back_ends: str, *arguments: str) -> pytest.RunResult:
    """Run the third party's tests over its back ends."""
    pytester.makepyfile(third_party=back_ends, test_mine=TESTS)
    return pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def test_right_back_ends_pass(pytester: pytest.Pytester) -> None:
    """Each clause of each contract is run: a store, a sink and a log of somebody else."""
    done = played(pytester, BACK_ENDS)
    outcomes = done.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] > 80


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_one_is_told_the_clause(pytester: pytest.Pytester, mistake: str) -> None:
    """The error has the clause, not only a difference of two lists; and the difference is there, too."""
    right, wrong, tests, words = MISTAKES[mistake]
    assert right in BACK_ENDS
    done = played(pytester, BACK_ENDS.replace(right, wrong), "-k", tests)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines([words])
    done.stdout.fnmatch_lines(["E *assert *"])


def test_a_contract_without_a_back_end_says_what_is_missing(pytester: pytest.Pytester) -> None:
    """A subclass that overrides nothing is told which fixture it needs."""
    pytester.makepyfile("from grete.testing.contracts import SinkContract\n\nclass TestMine(SinkContract):\n    pass\n")
    done = pytester.runpytest_subprocess("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist")
    done.stdout.fnmatch_lines(["*TestMine needs a fixture `world` that returns a SinkWorld*"])
