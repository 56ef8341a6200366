"""The sink to a Delta table keeps the shipped contract, and each output once when workers are killed or compete."""

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from grete import json
from grete.api.sinks.sink import Owner
from grete.errors import ConfigError, Halted, TransientError
from grete.sinks.delta import DeltaSink, delta_table
from grete.testing.contracts import SinkContract, SinkWorld
from grete.testing.contracts.sink import OWNER, apply, entries
from tests.contracts.sinks import DeclaredWorld, Numbered
from tests.sinks.delta_numbers import NumbersSink, numbers_in, numbers_table
from tests.sinks.killed_worker import APPLIED, COMMITTED, HALF, WRITTEN, line_by_line
from tests.sinks.test_kills import Story

pytestmark = pytest.mark.test  # an import of Arrow and Delta takes 0.3 s of computing


def world_of(path: Path) -> DeclaredWorld:
    """Return an empty table."""
    numbers_table(path)
    return DeclaredWorld(f"{numbers_in.__module__}:{NumbersSink.__name__}:{path}", lambda: numbers_in(path))


class TestDelta(SinkContract):
    """Each clause of the contract of a sink."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> SinkWorld:
        """Return an empty place."""
        return world_of(tmp_path / "numbers")


def lines_of_commit(path: Path) -> list[str]:
    """Return the points before each line that a commit runs."""
    passed: list[str] = []

    class Seen(NumbersSink):
        """The sink, whose lines are counted."""

    Seen.__module__ = NumbersSink.__module__
    line_by_line(passed.append, Seen)
    numbers_table(path)
    sink = Seen(str(path))
    sink.open(OWNER)
    assert apply(sink, 1, 1)
    return passed


@pytest.mark.chaos
@pytest.mark.timeout(900)  # a start of a worker for each line of a commit, and five more
def test_killed_before_every_line_of_a_commit_each_output_is_there_once(tmp_path: Path) -> None:
    """One life after another is killed at the next point, every third one loses its disk; two more repeat nothing."""
    lines = lines_of_commit(tmp_path / "other")
    assert len(lines) > 10
    story = Story(world_of(tmp_path / "numbers"), tmp_path, "checkpoint")
    try:
        story.survive((COMMITTED, HALF, WRITTEN, *lines, APPLIED))
    finally:
        story.close()


def test_tasks_append_at_once_while_small_files_are_joined(tmp_path: Path) -> None:
    """The table's log puts the commits of tasks, and of a person who joins small files, one behind another."""
    path = str(tmp_path / "numbers")
    numbers_table(tmp_path / "numbers")

    def append(task: str) -> None:
        sink = DeltaSink(path, json(Numbered))
        for checkpoint_id in range(20):
            done = False
            while not done:
                with contextlib.suppress(TransientError):
                    sink.open(Owner("job", task, "nonce"))
                    apply(sink, checkpoint_id, checkpoint_id, task=task)
                    done = True

    threads = [threading.Thread(target=append, args=(task,)) for task in "abc"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with contextlib.suppress(DeltaError):
            DeltaTable(path).optimize.compact()
    for thread in threads:
        thread.join()
    assert numbers_in(tmp_path / "numbers") == {task: list(range(20)) for task in "abc"}
    assert len(DeltaTable(path).file_uris()) < 60


def test_two_who_join_the_same_files(tmp_path: Path) -> None:
    """Both succeed in deltalake, and each row is there twice: so the sink does not join files."""
    path = str(tmp_path / "numbers")
    numbers_table(tmp_path / "numbers")
    sink = NumbersSink(path)
    sink.open(OWNER)
    assert apply(sink, 1, 1)
    assert apply(sink, 2, 2)
    both = DeltaTable(path), DeltaTable(path)
    for table in both:
        table.optimize.compact()
    assert numbers_in(tmp_path / "numbers") == {"a": [1, 1, 2, 2]}


def test_the_checkpoint_is_in_the_commit_of_its_rows(tmp_path: Path) -> None:
    """Anybody can read from the table how far a task's rows are there, by its application's id."""
    numbers_table(tmp_path / "numbers")
    sink = NumbersSink(str(tmp_path / "numbers"))
    assert sink.open(OWNER) == -1
    assert apply(sink, 7, 1, 2)
    table = DeltaTable(str(tmp_path / "numbers"))
    assert table.transaction_version("grete/job/stage-0/nonce") == 7
    assert NumbersSink(str(tmp_path / "numbers")).open(OWNER) == 7


ROWS: list[tuple[Any, str]] = [
    ({"task": "a"}, r"it has the fields \['task'\], the table the columns \['task', 'number'\]"),
    ({"task": "a", "number": "one"}, "row {'task': 'a', 'number': 'one'} does not fit"),
    ({"task": "a", "number": 1 << 70}, "does not fit"),
]


@pytest.mark.parametrize(("row", "words"), ROWS)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, row: Any, words: str) -> None:
    """A person changes the table; nothing of the checkpoint is there until then."""
    numbers_table(tmp_path / "numbers")
    sink = delta_table("numbers", str(tmp_path / "numbers"), json).connect()
    sink.open(OWNER)
    assert sink.begin(1)
    with pytest.raises(Halted, match=words) as error:
        sink.write([*entries([1]), ("out", json.encode(row))])
    assert "Checkpoint 1 of grete/job/stage-0/nonce waits" in str(error.value)
    sink.open(OWNER)
    assert apply(sink, 1, 1)
    assert numbers_in(tmp_path / "numbers") == {"a": [1]}


def test_a_row_that_breaks_a_rule_of_the_table_is_no_matter_of_time(tmp_path: Path) -> None:
    """A null where the table allows none is found before the commit, and is not tried again and again."""
    numbers_table(tmp_path / "numbers")
    sink = DeltaSink(str(tmp_path / "numbers"), json)
    sink.open(OWNER)
    assert sink.begin(1)
    with pytest.raises(Halted, match="does not fit"):
        sink.write([("out", b'{"task":null,"number":1}')])


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """The sink makes none: its columns are the user's."""
    with pytest.raises(ConfigError, match="there is none: create it before the job starts"):
        NumbersSink(str(tmp_path / "numbers")).open(OWNER)
