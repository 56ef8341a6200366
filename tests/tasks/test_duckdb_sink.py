"""The worked example of a sink: it keeps the shipped contract, and each output once when workers are killed."""

import json
from pathlib import Path

import duckdb
import pytest

from grete.testing.contracts import SinkContract, SinkWorld
from grete.testing.contracts.sink import apply
from tasks.external.duckdb_sink import DuckDbSink
from tests.cli.test_run import grete
from tests.contracts.sinks import DeclaredWorld, Numbered, by_task
from tests.sinks.killed_worker import APPLIED, COMMITTED, HALF, WRITTEN, line_by_line
from tests.sinks.test_kills import Story
from tests.spark.format.test_key_columns import JOB, SALES, counted, exported, scanned, sold

pytestmark = pytest.mark.test  # a DuckDB file takes 50 ms of computing to open, and each call of the sink opens it


def world_of(path: Path) -> DeclaredWorld:
    """Return an empty place: a file that is not there yet."""

    def content() -> dict[str, list[int]]:
        with duckdb.connect(str(path)) as sql:
            rows = sql.execute("SELECT value FROM output ORDER BY rowid").fetchall()
        return by_task([Numbered(**json.loads(value)) for (value,) in rows])

    return DeclaredWorld(f"{DuckDbSink.__module__}:{DuckDbSink.__name__}:{path}", content)


class TestDuckDb(SinkContract):
    """Each clause of the contract of a sink."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> SinkWorld:
        """Return an empty place."""
        return world_of(tmp_path / "numbers.duckdb")


def lines_of_commit(place: Path) -> list[str]:
    """Return the points before each line that a commit runs."""
    passed: list[str] = []

    class Seen(DuckDbSink):
        """The sink, whose lines are counted."""

    Seen.__module__ = DuckDbSink.__module__
    line_by_line(passed.append, Seen)
    sink = Seen(str(place))
    sink.open(("job", "stage-0", "nonce"))
    assert apply(sink, 1, 1)
    return passed


@pytest.mark.chaos
@pytest.mark.timeout(600)  # a start of a worker for each line of a commit, and five more
def test_killed_before_every_line_of_a_commit_each_output_is_there_once(tmp_path: Path) -> None:
    """One life after another is killed at the next point, every third one loses its disk; two more repeat nothing."""
    lines = lines_of_commit(tmp_path / "other.duckdb")
    assert len(lines) > 10
    story = Story(world_of(tmp_path / "numbers.duckdb"), tmp_path, "checkpoint")
    try:
        story.survive((COMMITTED, HALF, WRITTEN, *lines, APPLIED))
    finally:
        story.close()


def test_duckdb_reads_the_keys_of_an_export_as_the_commands_show_them(tmp_path: Path) -> None:
    """By the statement of the guide: a key of several parts is a struct, with the names of the job."""
    (tmp_path / "stock.py").write_text(JOB)
    for some in (SALES[:20], SALES[20:]):
        sold(tmp_path, some)
        grete("export", "stock.py", "--to=exported", cwd=tmp_path)
    rows = duckdb.execute(
        "SELECT key.shop, key.article, max_by(value, checkpoint_id) AS value FROM read_parquet(?) "
        "GROUP BY partition, key HAVING max_by(value, checkpoint_id) IS NOT NULL",
        [exported(tmp_path)],
    ).fetchall()
    assert {(shop, article): value for shop, article, value in rows} == scanned(tmp_path) == counted(SALES)
