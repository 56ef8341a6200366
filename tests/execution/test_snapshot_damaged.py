"""A snapshot of an idle job whose files are gone, or cut: it is told, and the next one mends it."""

from pathlib import Path

import pytest

from grete.cli.doctor.report import Report
from grete.cli.doctor.stored import look_at_snapshots
from tasks.word_count import job as word_count
from tests.execution.test_snapshot_install import TAKEN, Machines, has
from tests.execution.test_snapshot_install import machines as machines_of
from tests.worker.workers import TASK

machines = machines_of


@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_the_next_snapshot_of_an_idle_job_writes_a_damaged_file_again(machines: Machines, how: str) -> None:
    """As the error of a damaged file says; `grete doctor` tells it until then."""
    folder = Path(machines.url.removeprefix("file://")) / "word-count" / TASK / "files"
    largest = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    if how == "deleted":
        largest.unlink()
    else:
        largest.write_bytes(largest.read_bytes()[:-1])
    report = Report()
    look_at_snapshots(report, word_count, machines.url)
    assert ["1 of its files" in found.value for found in report.findings if found.level == "warning"] == [True]
    assert machines.take().uploaded is not None
    assert machines.take().uploaded is None
    machines.move()
    assert has(machines.work("more"), TAKEN)
