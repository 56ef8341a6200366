"""State as of a checkpoint, or of a time, by commands."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.state.read.checkpoints.commits import all_wirings
from tests.cli.test_state_commands import REFUSED, code, grete, newest_of, scan
from tests.state.pair_bulk_writes import run

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # workers, one after another


def test_a_time_names_the_newest_checkpoint_up_to_it(tmp_path: Path) -> None:
    """Checkpoints are numbered by the log's time. What is not retained, and a zone that lacks, are said."""
    reference, directory = code(tmp_path, "job.py"), tmp_path / "job"
    old = run(reference, directory, ("a", "x y"), ("b", "x"))
    before = newest_of(reference, directory)
    new = run(reference, directory, ("a", "x z"))
    last = newest_of(reference, directory)

    def at(time_ms: int) -> str:
        return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)).isoformat()

    found = [scan(reference, directory, at(time_ms)) for time_ms in (1_000, before, last, last + 3_600_000)]
    assert (before < last, found) == (True, [{}, old, new, new])
    asked = ("state", "scan", reference, "counts", f"--directory={directory}")
    no_zone = CliRunner().invoke(app, [*asked, "--checkpoint=2026-11-01T00:00"])
    assert (no_zone.exit_code, "the time has no zone" in no_zone.output) == (2, True)
    log = JobDirectory(directory).open_log()
    for wiring in all_wirings(load_job(reference)):
        log.trim(wiring.changelog, log.bounds(wiring.changelog)[1] - 1)
    log.close()
    said = grete(*asked, f"--checkpoint={at(1_000)}", fails=REFUSED)
    assert said.startswith("no checkpoint up to 1970-01-01T00:00:01+00:00 is retained: the first one is ")


def test_a_past_checkpoint_is_read_by_key(tmp_path: Path) -> None:
    """``state get --checkpoint``: the value then; 1 if there was none; no such store, and what was trimmed, is said."""
    two, directory = code(tmp_path, "two.py"), tmp_path / "job"
    run(two, directory, ("a", "x y"))
    checkpoint_id = newest_of(two, directory)
    run(two, directory, ("a", "x"))
    at = [f"--directory={directory}", f"--checkpoint={checkpoint_id}"]
    assert grete("state", "get", two, "counts", "x", *at) == "1\n"
    assert grete("state", "get", two, "counts", "x", f"--directory={directory}") == "2\n"
    assert CliRunner().invoke(app, ["state", "get", two, "counts", "nothing", *at]).exit_code == 1
    assert "no store is called 'nope'" in grete("state", "get", two, "nope", "x", *at, fails=REFUSED)
    log = JobDirectory(directory).open_log()
    for wiring in all_wirings(load_job(two)):
        log.trim(wiring.changelog, log.bounds(wiring.changelog)[1] - 1)
    log.close()
    assert "it began later, or it is not retained" in grete("state", "scan", two, "counts", *at, fails=REFUSED)
