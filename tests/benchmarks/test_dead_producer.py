"""While a producer is dead: what waits and what goes on, in real workers, and what the page says of it."""

import pytest

from benchmarks.dead_producer import COLUMNS, MODES, WAITING, Trouble, measure
from benchmarks.results import RESULTS, read

# starts of workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("mode", "trouble"),
    [
        ("aligned", "killed"),
        ("deterministic", "killed"),
        ("aligned behind deterministic", "killed"),
        ("aligned behind deterministic", "frozen"),
    ],
)
def test_what_waits_for_a_dead_producer_and_what_goes_on(mode: str, trouble: Trouble) -> None:
    """``measure`` raises if a line is lost or doubled, or the other branch stops.

    Frozen: the producer was not dead after all. Its consumer has committed meanwhile, with the offset from which that
    producer's records are still to be read (RecoveryOffset), and takes each of them once.
    """
    seen = measure("embedded", mode, trouble, dead_s=0.5)
    assert seen.shown("copies") > 0
    assert (seen.shown("numbered") > 0) == (mode not in WAITING)


def test_the_page_says_what_was_measured() -> None:
    """Each mode on each log; 0 % where a mode waits, nearly all where it does not, and the other branch goes on."""
    tables = [table for run in read("dead-producer").runs for table in run.tables]
    rows = [dict(zip(table.columns, row, strict=True)) for table in tables for row in table.rows]
    assert all(table.columns == COLUMNS for table in tables)
    assert {row["mode"] for row in rows} == set(MODES)
    for row in rows:
        visible = int(str(row["visible before it is back"]).rstrip("%"))
        assert visible == 0 if row["mode"] in WAITING else visible > 75, row
        assert int(str(row["other branch: visible"]).rstrip("%")) > 75, row
    page = (RESULTS / "dead-producer.md").read_text("utf-8")
    assert "<!-- results: dead-producer -->" in page
    assert all(f"| {mode} |" in page.partition("## Who waits")[2] for mode in MODES)
