"""Each test has one tier: what it needs decides, or a marker, and a contradiction ends the collection."""

from pathlib import Path

import pytest

from tests.suite.tiers import NEEDS, SERVERS, TIERS, TierError, heavy_functions, is_heavy, tier_of

ROOT = Path(__file__).parents[2]


def test_what_a_test_needs_decides() -> None:
    """Without a tier of its own a test is of `make check`, or of `make test` where that could not run it."""
    assert tier_of("t", set()) == tier_of("t", {"parametrize", "timeout"}) == "check"
    assert {tier_of("t", {need}) for need in NEEDS} == {"test"}


@pytest.mark.parametrize("tier", TIERS)
def test_a_written_tier_counts(tier: str) -> None:
    """A marker of that name puts a test there, also one that needs a broker, but for check."""
    assert tier_of("t", {tier}) == tier
    if tier != "check":
        assert tier_of("t", {tier, "kafka"}) == tier


@pytest.mark.parametrize(
    ("markers", "fixtures", "says"),
    [
        ({"prove", "ship"}, set(), "t has the tiers prove and ship"),
        ({"check", "kafka", "spark"}, set(), "the marker check, and kafka, spark"),
        (set(), {"kafka_broker"}, "asks for a server of kafka"),
        ({"prove"}, {"postgres", "chromium", "tmp_path"}, "asks for a server of browser, postgres"),
    ],
)
def test_a_contradiction_is_told(markers: set[str], fixtures: set[str], says: str) -> None:
    """No test can be of two tiers, and none of check starts a server."""
    with pytest.raises(TierError, match=says):
        tier_of("t", markers, fixtures)


def test_each_fixture_of_a_server_is_of_a_marker() -> None:
    """The markers that fixtures ask for are of those that decide."""
    assert {*SERVERS.values()} <= NEEDS


CASES = """
import pytest

def test_plain(): pass

@pytest.mark.kafka
def test_broker(): pass

@pytest.mark.prove
@pytest.mark.kafka
def test_search(): pass
"""


def suite(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    """Run a module of tests under our conftest.py."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    pytester.makepyfile(text)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", "--disable-warnings", *arguments)


@pytest.mark.parametrize(("asked", "expected"), [("check", 1), ("check or test", 2), ("prove", 1), ("ship", 0)])
def test_the_commands_choose_by_tier(pytester: pytest.Pytester, asked: str, expected: int) -> None:
    """`-m`, as the Makefile says it, runs the tests of those tiers."""
    assert suite(pytester, CASES, "-m", asked).parseoutcomes().get("passed", 0) == expected


def test_a_test_of_two_tiers_ends_the_collection(pytester: pytest.Pytester) -> None:
    """Nothing runs until the test says which one it is of."""
    done = suite(pytester, CASES.replace("mark.kafka", "mark.ship"))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*test_search has the tiers prove and ship*"])


def test_what_a_test_took_decides() -> None:
    """A function that started workers, or computed for long, is not of check, unless that is written there."""
    assert is_heavy(2.0, 0.1)
    assert is_heavy(0.0, 1.5)
    assert not is_heavy(1.0, 0.9)
    assert tier_of("t.py::a[1]", set(), heavy={"t.py::a"}) == "test"
    assert tier_of("t.py::b", set(), heavy={"t.py::a"}) == "check"
    assert tier_of("t.py::a[1]", {"check"}, heavy={"t.py::a"}) == "check"


def test_what_was_kept_is_too_much_for_check() -> None:
    """The table has the functions beyond a bound and no others."""
    assert all(is_heavy(processes, computing_s) for processes, computing_s in heavy_functions().values())
