"""`grete plan`: each change of a job's code is a row with who makes it, and what happens to state and records."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.errors import ConfigError
from grete.logs.embedded import EmbeddedReader
from tests.cli.changed_pipeline import MORE, RENAMED_STAGE, RENAMED_STORE, code, run, scan
from tests.cli.changed_shop import Changes
from tests.cli.test_state_commands import grete

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]  # many workers, one after another

APPLY, REFUSED = "apply", "refused"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job that has run."""
    folder = tmp_path_factory.mktemp("ran")
    run(code(folder), folder / "job", "pear", "fig", "pear")
    return folder / "job"


@pytest.fixture
def directory(ran: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    return Path(shutil.copytree(ran, tmp_path / "job"))


def plan(reference: str, directory: Path) -> tuple[int, list[dict[str, str]]]:
    """Return the exit code of ``grete plan --json``, and its rows."""
    done = CliRunner().invoke(app, ["plan", reference, f"--directory={directory}", "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]


def everything(directory: Path) -> list[object]:
    """Return all that the log of a directory holds."""
    with closing(sqlite3.connect(directory / "log.db")) as log:
        return [sorted(log.execute(f"SELECT * FROM {table}"), key=repr) for table in ("message", "meta")]


FIELD = '    more = Input(Topic("more", key=utf8, value=utf8))'
READER = """class More(Task):
    totals = Input(totals)
    def process(self, record: object) -> None:
        pass
job = Job("""
ROWS: dict[str, tuple[Changes, list[str]]] = {  # the changes of the code, and of each row who makes it and what
    "the same code": ((), []),
    "other code in process": ((("count = self", "number = count = self"),), []),
    "a stage is renamed": (RENAMED_STAGE, ["start: stage 'total' is called 'sum' now"]),
    "a store is renamed": (RENAMED_STORE, ["start: total/counts is called 'sums' now"]),
    "a stage is added last": ((MORE, ("Audit]", "Audit, More]")), ["start: stage 'more' is new"]),
    "a store is added": (
        (("    last = Store(", '    more = Store("more", key=utf8, value=utf8)\n    last = Store('),),
        ["start: total/more is new"],
    ),
    "another output topic": (
        (('Topic("totals"', 'Topic("sums"'),),
        ["start: output topic 'totals' is no longer written", "start: output topic 'sums' is new"],
    ),
    "a source reads one more topic": (
        (("    orders = Input(orders)", f"{FIELD}\n    orders = Input(orders)"),),
        ["start: stage 'parse' reads topic 'more' from outside"],
    ),
    "a topic from outside is no longer read": (
        (('orders = Topic("orders"', 'orders = Topic("others"'),),
        [
            "refused: stage 'parse' no longer reads topic 'orders' from outside",
            "start: stage 'parse' reads topic 'others' from outside",
        ],
    ),
    "stages change places": (
        (("[Parse, Enrich", "[Enrich, Parse"),),
        ["refused: the stages were parse, enrich, total, audit and are enrich, parse, total, audit"],
    ),
    "a mode": (
        (("partitions=2)", 'partitions=2, mode="deterministic")'),),
        [f"refused: stage {name!r} was aligned and is deterministic" for name in ("audit", "enrich", "parse", "total")],
    ),
    "more partitions": ((("partitions=2", "partitions=4"),), ["refused: job 'pipeline' had 2 partitions and has 4"]),
    "fewer partitions": ((("partitions=2", "partitions=1"),), ["refused: job 'pipeline' had 2 partitions and has 1"]),
    "partitions of one stage": (
        (("class Enrich(Task):", "class Enrich(Task):\n    partitions = 3"),),
        ["refused: stage 'enrich' had 2 partitions and has 3"],
    ),
    "the key of a store": (
        (('"counts", key=utf8', '"counts", key=json(str)'),),
        ["refused: store total/counts: its key was utf8 and is json(str)"],
    ),
    "a stream is public, too": (
        (('"enriched", key=utf8, value=utf8', '"enriched", key=utf8, value=utf8, public=True'),),
        ["start: output topic 'enriched' is new"],
    ),
    "a stage reads an output topic": (
        (("job = Job(", READER), ("Audit]", "Audit, More]")),
        ["start: stage 'more' is new", "refused: stage 'more' reads topic 'totals', which readers outside of the job"],
    ),
    "the key of a stream": (
        (('"enriched", key=utf8', '"enriched", key=json(str)'),),
        ["refused: topic 'enriched', which stage 'total' reads from another stage: its key was utf8 and is json(str)"],
    ),
    "a stream is read whole": (
        (("given = Input(enriched)", "given = Input(enriched, broadcast=True)"),),
        [
            "apply: the broadcast stream 'enrich.enriched.total' from 'enrich' to 'total' is new",
            "apply: the stream 'enrich.enriched.total' from 'enrich' to 'total' is gone",
            "refused: stage 'total' has read topic 'enriched' by partition, each task its own, and this code reads it",
        ],
    ),
}


@pytest.mark.parametrize(("changes", "rows"), ROWS.values(), ids=ROWS)
def test_each_change_is_a_row(ran: Path, tmp_path: Path, changes: Changes, rows: list[str]) -> None:
    """The plan says who makes it, its exit code says whether there is something to do, and it writes nothing."""
    before = everything(ran)
    ends, found = plan(code(tmp_path, *changes), ran)
    texts = sorted(f"{row['by']}: {row['what']}" for row in found)
    assert [text[: len(begins)] for text, begins in zip(texts, sorted(rows), strict=True)] == sorted(rows)
    assert all(row["state"] and row["in_flight"] for row in found)
    assert all(bool(row["way"]) == (row["by"] == REFUSED) for row in found)
    makers = {row["by"] for row in found}
    assert ends == (2 if REFUSED in makers else 1 if APPLY in makers else 0)
    assert everything(ran) == before


WAYS: list[tuple[tuple[str, str], str]] = [
    (("partitions=2", "partitions=4"), "to have more: grete rescale JOB --partitions=4"),
    (("partitions=2", "partitions=1"), "to have fewer: grete fork JOB SECOND_JOB"),
    (
        ("class Enrich(Task):", "class Enrich(Task):\n    partitions = 3"),
        "grete rescale JOB --stage=enrich --partitions=3",
    ),
    (('"counts", key=utf8', '"counts", key=json(str)'), "give the changed one another name"),
    (("partitions=2)", 'partitions=2, mode="deterministic")'), "put its mode back; or give the job another name"),
    (('orders = Topic("orders"', 'orders = Topic("others"'), "read it as before, and drop its records in process"),
]


@pytest.mark.parametrize(("change", "way"), WAYS)
def test_a_refusal_names_a_way(ran: Path, tmp_path: Path, change: tuple[str, str], way: str) -> None:
    """The text below the table is what works instead."""
    changed = code(tmp_path, change)
    done = CliRunner().invoke(app, ["plan", changed, f"--directory={ran}"])
    assert done.exit_code == 2
    assert way in done.stdout


def test_a_start_names_the_plan(ran: Path, tmp_path: Path) -> None:
    """A refused start says which command shows what each change does."""
    for changes in (("[Parse, Enrich", "[Enrich, Parse"), ('"counts", key=utf8', '"counts", key=json(str)')):
        for command in ("run", "up"):
            refused = grete(command, code(tmp_path, changes), f"--directory={ran}", fails=ConfigError)
            assert "What each change does, and what can be done: grete plan JOB" in refused


def test_a_job_that_has_not_run_has_no_plan(tmp_path: Path) -> None:
    """There is nothing to compare with."""
    refused = grete("plan", code(tmp_path), f"--directory={tmp_path / 'job'}", fails=ConfigError)
    assert "no job has run in" in refused


def test_a_renamed_stage_and_store_keep_their_state(directory: Path, tmp_path: Path) -> None:
    """Commands take the new name and the first one; topics and directories keep the first; the code before goes on."""
    changed = code(tmp_path, *RENAMED_STAGE, *RENAMED_STORE)
    run(changed, directory, "pear")
    assert scan(changed, directory, "sum/sums") == {"fig": 1, "pear": 3}
    assert scan(changed, directory, "total/counts") == {"fig": 1, "pear": 3}
    assert plan(changed, directory) == (0, [])
    with closing(EmbeddedReader(directory / "log.db")) as log:
        topics = set(log.topics())
    assert "pipeline.total.changelog" in topics
    assert not any("sum" in topic for topic in topics)
    assert not any("sum" in path.name for path in (directory / "state").iterdir())
    before = code(tmp_path, name="before")
    run(before, directory, "fig")  # it is the same job: its workers may go on beside the new ones
    assert scan(before, directory, "counts") == {"fig": 2, "pear": 3}


def test_a_name_that_a_stage_or_store_had_first_is_taken(tmp_path: Path) -> None:
    """Another one of that name would have its topics and its state."""
    twice = code(tmp_path, ("class Total(Task):", 'class Total(Task):\n    renamed_from = "parse"'))
    assert "stage 'parse' clashes with 'parse'" in grete("plan", twice, fails=ConfigError)
    again = code(tmp_path, ('"last", key=utf8, value=utf8', '"counts", key=utf8, value=utf8, renamed_from="last"'))
    refused = grete("plan", again, fails=ConfigError)
    assert "store 'counts' clashes with 'counts': the first name of a store is taken for good" in refused
