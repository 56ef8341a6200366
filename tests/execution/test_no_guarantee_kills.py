"""Without a guarantee, in worker processes that die by SIGKILL: user code runs once for a record, or not at all."""

from collections import Counter
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.settings import Settings
from tests.execution.killed_run import EACH, KILLS, ON, address_of, job_file, run_killed
from tests.execution.marked_job import lines_of, marking, marks_of


@pytest.mark.chaos
@pytest.mark.timeout(600)
@ON
def test_killed_workers_process_no_record_twice(request: pytest.FixtureRequest, tmp_path: Path, on: str) -> None:
    """A line of the trace is there once at most, and what is lost is what the killed workers had read."""
    name, trace = f"marked-{on}", tmp_path / "trace"
    file = job_file(tmp_path, "tests.execution.marked_job import marking", f"marking({name!r}, {str(trace)!r})")
    settings = Settings(processing_guarantee="none", checkpoint_interval_ms=50, restart_backoff_ms=20)
    place = JobDirectory(tmp_path / "place", address=address_of(request, on))
    topics = lines_of(name).name, marks_of(name).name
    fed, rows, died = run_killed(marking(name, str(trace)), file, place, settings, *topics)
    ran, shown = Counter(trace.read_text().splitlines()), Counter(row.value for row in rows)
    assert set(ran.values()) == {1}, died
    assert set(shown.values()) == {1}, died
    split = sum(line.startswith("split") for line in ran)
    assert fed - KILLS * EACH <= split <= fed, died  # each kill takes one batch of lines at most
    last = {b"%d" % number for number in range(fed - EACH, fed)}
    assert last <= set(shown), f"no worker was killed after the last batch: {died}"
