"""Files that an earlier release has written outside of a job's directory: this build takes them.

``files-RELEASE.tar.xz`` was made by ``make_files.py`` with that release's code.
"""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cli.test_run import grete
from tests.support.archives import unpack
from tests.upgrade.make_files import CODES
from tests.upgrade.make_stored import FIRST, HERE, SECOND

MORE = [("k0", "w0 w1"), ("k9", "w2 n0")]


@pytest.fixture(params=CODES)
def code(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Unpack what release 0.3.0 has left of a job into ``tmp_path``; return the job's code there."""
    name = str(request.param)
    unpack(HERE / "files-0.3.0.tar.xz", tmp_path / "all")
    shutil.copytree(tmp_path / "all" / name.removesuffix(".py"), tmp_path, dirs_exist_ok=True)
    shutil.copy(HERE / name, tmp_path)
    return name


def test_an_incident_runs_as_it_did(code: str, tmp_path: Path) -> None:
    """It begins where the job had ended for a while, and comes to the state that the log has."""
    assert code in grete("incident", "show", "incident.zip", cwd=tmp_path)
    said = grete("incident", "run", "incident.zip", cwd=tmp_path)
    assert "lines[0]: read from offset 12 to 20" in said
    assert "2 of 2 are as in the log" in said
    assert "the task has processed all of it without an error" in said


def test_a_snapshot_is_a_state_to_begin_from(code: str, tmp_path: Path) -> None:
    """The job goes on without its stores: each worker takes the snapshots of its tasks."""
    (tmp_path / "more.tsv").write_text("".join(f"{key}\t{value}\n" for key, value in MORE))
    options = ("--directory=job", "--set=snapshot_url=snapshots")
    assert f"{len(MORE)} input records committed" in grete(
        "run", code, "--input=lines=more.tsv", "--keys", *options, cwd=tmp_path
    )
    for number in range(2):
        assert (tmp_path / "job" / "logs" / f"worker-{number}.log").read_text().count('"id": "snapshot-taken"') == 2
    seen = dict(
        line.split("\t") for line in grete("state", "scan", code, "split/seen", *options[:1], cwd=tmp_path).splitlines()
    )
    lines = [key for key, _ in (*FIRST, *SECOND, *MORE)]
    assert seen == {key: str(lines.count(key)) for key in set(lines)}
    if code == "aligned.py":
        rows = sqlite3.connect(tmp_path / "rows.db")
        words = [word for _, value in (*FIRST, *SECOND, *MORE) for word in value.split()]
        assert rows.execute("SELECT count(*) FROM totals").fetchone() == (len(words),)
        rows.close()
