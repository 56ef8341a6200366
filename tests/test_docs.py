"""The pages about the protocol and about Kafka name nothing that is not there: modules, tests, invariants, mutants."""

import re
from pathlib import Path

import pytest

from tests.verification.model.counterexamples import COUNTEREXAMPLES
from tests.verification.simulation.mutants import MUTANTS
from tests.verification.simulation.rules import INVARIANTS

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / "docs" / name).read_text("utf-8") for name in ("PROTOCOL.md", "TRACEABILITY.md", "kafka.md")}
KINDS = {"inv.": set(INVARIANTS), "mut.": set(MUTANTS), "counterexample": set(COUNTEREXAMPLES)}


def known_tests() -> set[str]:
    """Return the names of all test functions."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)}


def named(page: str, kind: str) -> set[str]:
    """Return the names that follow a kind: ``kind `one`, `two` ``."""
    lists = re.findall(rf"\b{re.escape(kind)} (`[^`]+`(?:, `[^`]+`)*)", page)
    return {name for each in lists for name in re.findall(r"`([^`]+)`", each)}


@pytest.mark.parametrize("name", PAGES)
def test_paths_are_there(name: str) -> None:
    """Every file or folder that a page names, or links to, exists."""
    paths = re.findall(r"`((?:framework|protocol|tests|tasks|docs|benchmarks)/[^` ]*)`", PAGES[name])
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", PAGES[name])]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if link and not (ROOT / "docs" / link).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_tests_are_there(name: str) -> None:
    """Every test that a page names exists, and it names many."""
    tests = set(re.findall(r"`(test_\w+)`", PAGES[name]))
    assert len(tests) > 20
    assert tests - known_tests() == set()


@pytest.mark.parametrize("kind", KINDS)
def test_invariants_mutants_and_counterexamples_are_there(kind: str) -> None:
    """Every invariant, mutant and counterexample that the pages name exists under this name."""
    names = set().union(*(named(page, kind) for page in PAGES.values()))
    assert names
    assert names - KINDS[kind] == set()


def test_every_rule_is_told() -> None:
    """Each rule of the protocol has a row, and each counterexample is closed by one."""
    page = PAGES["PROTOCOL.md"]
    rules = [*(f"C{n}" for n in range(1, 7)), *(f"A{n}" for n in range(1, 10)), "A2b", *(f"R{n}" for n in range(1, 7))]
    rules += [
        *(f"E{n}" for n in range(1, 6)),
        "K1",
        "K2",
        "K3",
        "B1",
        "S1",
        "S2",
        "S3",
        "1.5",
        *(f"D{n}" for n in range(1, 7)),
    ]
    assert [rule for rule in rules if f"\n| {rule} |" not in page] == []
    assert set(COUNTEREXAMPLES) - named(page, "counterexample") == set()


def test_the_table_of_counterexamples_is_that_of_the_code() -> None:
    """The page tells each counterexample in the words of the code.

    Literal rule, what closes it, the invariant that notices.
    """
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGES["PROTOCOL.md"], re.MULTILINE))
    assert set(rows) == set(COUNTEREXAMPLES)
    for name, counterexample in COUNTEREXAMPLES.items():
        cells = rows[name].split(" | ")
        assert (cells[0], cells[2]) == (counterexample.says, counterexample.missing)
        assert cells[1].endswith(f"(`{counterexample.invariant}`)")
