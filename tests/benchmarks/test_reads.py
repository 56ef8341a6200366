"""The table of the experiment with reads."""

from benchmarks.reads import Measured, table


def test_the_table_has_the_rate_beside_that_of_the_job_alone() -> None:
    """Medians of rounds; percentiles of all reads together."""
    reads = [Measured(150.0, [1.0, 2.0, 3.0]), Measured(150.0, [9.0])]
    found = {0: [Measured(100.0, []), Measured(300.0, [])], 50: reads}
    assert table(found).rows == [
        ["0", "200", "1.00", "0", "", ""],
        ["50", "150", "0.75", "4", "2.0", "3.0"],
    ]
