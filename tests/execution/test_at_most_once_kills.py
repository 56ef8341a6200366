"""At most once, in worker processes that die by SIGKILL: no output contradicts another, in two stages."""

from itertools import pairwise
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.settings import Settings
from tests.execution.concat_job import concatenating, letters_of, shown_of
from tests.execution.killed_run import EACH, KILLS, ON, address_of, job_file, run_killed


@pytest.mark.chaos
@pytest.mark.timeout(600)
@ON
def test_killed_workers_show_what_a_part_of_the_input_makes(
    request: pytest.FixtureRequest, tmp_path: Path, on: str
) -> None:
    """After `a`, `ac`, `acb` never comes `acd`, nor a count that lacks a string that was shown."""
    name = f"concatenated-{on}"
    file = job_file(tmp_path, "tests.execution.concat_job import concatenating", f"concatenating({name!r})")
    settings = Settings(processing_guarantee="at-most-once", checkpoint_interval_ms=50, restart_backoff_ms=20)
    place = JobDirectory(tmp_path / "place", address=address_of(request, on))
    topics = letters_of(name).name, shown_of(name).name
    fed, rows, died = run_killed(concatenating(name), file, place, settings, *topics)
    strings: dict[bytes, list[list[str]]] = {}
    for row in rows:
        count, string = (row.value or b"").decode().split()
        strings.setdefault(row.key or b"", []).append(string.split(";")[:-1])
        assert int(count) == len(strings[row.key or b""]), died
    for each in strings.values():
        assert len(each[0]) == 1, died
        assert all(after[:-1] == before and int(after[-1]) > int(after[-2]) for before, after in pairwise(each)), died
    kept = {int(letter) for each in strings.values() for letter in each[-1]}
    assert fed - 2 * KILLS * EACH <= len(kept) <= fed, died
    assert set(range(fed - EACH, fed)) <= kept, f"no worker was killed after the last batch: {died}"
