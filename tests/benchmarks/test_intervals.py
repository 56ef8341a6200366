"""Early outputs by interval: what the page shows is the median of the rounds."""

from benchmarks.intervals import INTERVALS_MS, table


def test_a_row_has_the_medians_of_its_rounds() -> None:
    """p50 and p99 each by themselves; a row for each log and mode."""
    found = {("kafka", "deterministic", interval): [(1.0, 30.0), (3.0, 10.0), (9.0, 20.0)] for interval in INTERVALS_MS}
    assert table(found).rows == [["Kafka", "deterministic", *["3.0 / 20.0"] * len(INTERVALS_MS)]]
