"""The cost of a killed process by the size of its job: what is counted, and the page."""

import itertools

import pytest

from benchmarks.damage import COLUMNS, MODES, longest
from benchmarks.results import RESULTS, read


def test_the_longest_pause_is_within_its_time_and_counts_from_the_begin() -> None:
    """Outputs before and after do not count; a wait for the first output does."""
    stamps = [1.0, 5.0, 5.25, 5.5, 6.5, 20.0]
    assert longest(stamps, 5.0, 10.0) == pytest.approx(1_000)
    assert longest(stamps, 3.0, 5.5) == pytest.approx(2_000)


def test_the_page_has_each_size_in_each_mode() -> None:
    """A row for each, but the largest; every kill makes a task repeat records, and never more tasks than there are."""
    [run] = read("damage").runs
    [table] = run.tables
    assert table.columns == COLUMNS
    sizes = {tuple(row[:3]) for row in table.rows}
    asked = set(itertools.product((1, 2, 4), (1, 2, 4, 8), MODES))
    assert asked - sizes <= {(4, 8, mode) for mode in MODES}, "only what the machine is too small for may be missing"
    for stages, tasks, _, again, _, did, *_ in table.rows:
        found, whole = str(did).split(" of ")
        assert int(whole) == int(str(stages)) * int(str(tasks))
        assert 0 < int(found) <= int(whole)
        assert isinstance(again, int)
        assert again > 0
    assert "make bench EXPERIMENT=damage" in (RESULTS / "damage.md").read_text("utf-8")
