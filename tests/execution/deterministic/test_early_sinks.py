"""Files and tables that get outputs of deterministic tasks ahead of their checkpoints (D5), by the test kit."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grete import Files, Input, Job, Output, Record, Store, Table, Task, Topic, int64, json, utf8
from grete.errors import ConfigError, Halted
from grete.settings import Settings
from grete.testing import Kit

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
LONG_MS = 60_000  # no checkpoint comes while a test looks
EARLY = Settings(sink_delivery="early", checkpoint_interval_ms=LONG_MS)


class Row(msgspec.Struct):
    """The row that the tests' tasks write."""

    number: int
    word: str


class Split(Task):
    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, word)


def job_writing(target: Any, *, alone: bool = False, name: str = "j", draw: list[str] | None = None) -> Job:
    """Return a job that numbers words of lines: in two stages, or ``alone`` in a source that is a sink."""

    class Count(Task):
        name = "count"
        words = Input(LINES if alone else WORDS)
        counts = Store("counts", key=utf8, value=int64)
        out = Output(target)

        def process(self, record: Record[str, str]) -> None:
            for word in record.value.split():
                count = self.counts.get("all", 0) + 1
                self.counts.put("all", count)
                self.out.send(None, Row(count, draw[0] if draw else word))

    return Job(name, stages=[Count] if alone else [Split, Count], partitions=1, mode="deterministic")


class Place:
    """A place for rows of each kind, and what a stranger finds there."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.files = directory / "out"
        self.database = directory / "rows.db"
        self.target: Any = Files(str(self.files), value=json(Row))
        if kind == "sqlite":
            self.ask("CREATE TABLE counted (number BIGINT, word TEXT)")
            self.target = Table(str(self.database), "counted", json(Row))
        self.kind = kind

    def ask(self, statement: str) -> list[Any]:
        """Run a statement; return the rows."""
        connection = sqlite3.connect(self.database, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def names(self) -> list[str]:
        """Return the names of the files that a reader takes, in their order."""
        return sorted(path.name for path in self.files.glob("*") if not path.name.startswith("."))

    def words(self) -> list[str]:
        """Return the words; their numbers must be 1, 2, 3 …."""
        if self.kind == "sqlite":
            rows = [Row(*row) for row in self.ask("SELECT number, word FROM counted ORDER BY rowid")]
        else:
            lines = [line for name in self.names() for line in (self.files / name).read_bytes().splitlines()]
            rows = [msgspec.json.decode(line, type=Row) for line in lines]
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        return [row.word for row in rows]


@pytest.fixture(params=["files", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind."""
    return Place(request.param, tmp_path)


@pytest.mark.parametrize("alone", [False, True])
def test_outputs_are_there_long_before_their_checkpoint(place: Place, *, alone: bool) -> None:
    """D5: as soon as their time is whole, not when the checkpoint commits; by default they wait for it."""
    for settings, expected in ((Settings(checkpoint_interval_ms=LONG_MS), []), (EARLY, ["a", "b", "c"])):
        kit = Kit(job_writing(place.target, alone=alone, name=settings.sink_delivery), settings=settings)
        kit.advance(50)
        kit.feed(LINES, None, "a b")
        kit.feed(LINES, None, "c")
        kit.advance(50)
        assert place.words() == expected
        kit.crash("count")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alone", [False, True])
def test_killed_tasks_release_each_output_once(place: Place, seed: int, *, alone: bool) -> None:
    """D5: tasks die at any step, some with their disks; each output is there once, in order."""
    settings = Settings(sink_delivery="early", checkpoint_interval_ms=50, batch_bytes_max=200)
    kit = Kit(job_writing(place.target, alone=alone), settings=settings)
    words = []
    for number in range(8):
        kit.feed(LINES, None, f"to be {number}")
        words += ["to", "be", str(number)]
        kit.advance(3)
        kit.crash("count", other_host=number % 3 == 0)
    kit.run(crashes=8, seed=seed)
    assert place.words() == words
    kit.stop()


@pytest.mark.parametrize("alone", [False, True])
def test_what_is_there_is_made_again_and_left_out(place: Place, *, alone: bool) -> None:
    """D5: without any commit since, the successor asks the sink how far it is, compares, and goes on behind it."""
    kit = Kit(job_writing(place.target, alone=alone), settings=EARLY)
    kit.advance(50)
    kit.feed(LINES, None, "a b")
    kit.advance(50)
    assert place.words() == ["a", "b"]
    for other_host in (False, True):
        kit.crash("count", other_host=other_host)
        kit.advance(50)
        assert place.words() == ["a", "b"]
    kit.feed(LINES, None, "c")
    kit.advance(50)
    assert place.words() == ["a", "b", "c"]
    kit.stop()


@pytest.mark.parametrize("alone", [False, True])
def test_a_task_that_makes_others_the_second_time_halts(place: Place, *, alone: bool) -> None:
    """D5: a difference in what is visible is found before anything is released behind it, and the range is named."""
    draw = ["first"]
    kit = Kit(job_writing(place.target, alone=alone, draw=draw), settings=EARLY)
    kit.advance(50)
    kit.feed(LINES, None, "a b")
    kit.advance(50)
    kit.crash("count")
    draw[0] = "second"
    with pytest.raises(Halted, match=r"count-0 is not deterministic: .* the outputs 1 to 2 .* visible in"):
        kit.advance(50)
    assert place.words() == ["first", "first"]


def test_no_commit_waits_for_a_sink_and_what_it_lacks_is_state(tmp_path: Path) -> None:
    """D5: commits go on while a directory is away; a successor without the disk brings all of it there, once."""
    place = Place("files", tmp_path)
    kit = Kit(job_writing(place.target), settings=Settings(sink_delivery="early", checkpoint_interval_ms=50))
    kit.feed(LINES, None, "a")
    kit.run()
    away = place.files.with_name("away")
    place.files.rename(away)
    place.files.write_text("in the way")
    for line in ("b", "c d"):
        before = kit._tasks["count", 0].checkpoint_id
        kit.feed(LINES, None, line)
        kit.advance(500)
        assert kit._tasks["count", 0].checkpoint_id > before
        assert not kit._tasks["count", 0].has_committed_all
    place.files.unlink()
    away.rename(place.files)
    assert place.words() == ["a"]
    kit.crash("count", other_host=True)
    kit.run()
    assert place.words() == ["a", "b", "c", "d"]
    kit.stop()


def test_a_slow_sink_holds_its_task_back_at_the_bound(tmp_path: Path) -> None:
    """B1: while more than sink_buffer_bytes_max wait for a sink the task reads no more; then it goes on."""
    place = Place("files", tmp_path)
    settings = Settings(sink_delivery="early", checkpoint_interval_ms=50, sink_buffer_bytes_max=1_000)
    kit = Kit(job_writing(place.target), settings=settings)
    kit.advance(50)
    away = place.files.with_name("away")
    place.files.rename(away)
    place.files.write_text("in the way")
    for _ in range(50):
        kit.feed(LINES, None, "word")
        kit.advance(20)
    process = kit._tasks["count", 0].process
    assert process is not None
    assert process.driver.parts.runner.outbox is not None
    assert 1_000 < process.driver.parts.runner.outbox.waiting_bytes < 2_000
    place.files.unlink()
    away.rename(place.files)
    kit.run()
    assert place.words() == ["word"] * 50
    kit.stop()


def with_settings(kit: Kit, settings: Settings) -> None:
    """Let what the kit starts next have other settings."""
    kit.settings = settings
    for task in kit._tasks.values():
        task.settings = settings


@pytest.mark.parametrize("crashes", [False, True])
def test_a_place_of_checkpoints_goes_on_with_early_releases(place: Place, *, crashes: bool) -> None:
    """A directory or table that got checkpoints opens under the new setting, and goes on behind them."""
    kit = Kit(job_writing(place.target), settings=Settings(checkpoint_interval_ms=50))
    kit.feed(LINES, None, "a b")
    kit.run()
    assert place.words() == ["a", "b"]
    if crashes:
        kit.crash_all()
    else:
        kit.stop()
    with_settings(kit, Settings(sink_delivery="early", checkpoint_interval_ms=50))
    kit.feed(LINES, None, "c")
    kit.run()
    kit.crash("count", other_host=True)
    kit.feed(LINES, None, "d")
    kit.run()
    assert place.words() == ["a", "b", "c", "d"]
    if place.kind == "files":
        checkpoint, *released = place.names()
        assert checkpoint.startswith("part-count-0-")
        assert [name[:49] for name in released] == [f"part-count-0-seq-{n:015}-{n:015}-" for n in (1, 2)]
    kit.stop()


def test_checkpoints_that_wait_go_before_early_releases(tmp_path: Path) -> None:
    """A checkpoint that was not applied when the setting changed is applied first."""
    place = Place("files", tmp_path)
    kit = Kit(job_writing(place.target), settings=Settings(checkpoint_interval_ms=50))
    kit.advance(50)
    away = place.files.with_name("away")
    place.files.rename(away)
    place.files.write_text("in the way")
    kit.feed(LINES, None, "a b")
    kit.advance(500)
    kit.crash_all()
    with_settings(kit, Settings(sink_delivery="early", checkpoint_interval_ms=50))
    place.files.unlink()
    away.rename(place.files)
    kit.feed(LINES, None, "c")
    kit.run()
    assert place.words() == ["a", "b", "c"]
    kit.stop()


def test_early_releases_cannot_go_back_to_checkpoints(place: Place) -> None:
    """Outputs released ahead of a commit would come twice: the start names the setting to put back."""
    kit = Kit(job_writing(place.target), settings=Settings(sink_delivery="early", checkpoint_interval_ms=50))
    kit.feed(LINES, None, "a b")
    kit.run()
    kit.stop()
    with_settings(kit, Settings(checkpoint_interval_ms=50))
    with pytest.raises(ConfigError, match=r"task count-0 has released .* set sink_delivery = early again"):
        kit.advance(50)
    kit.crash_all()


def test_a_job_that_starts_afresh_is_refused_where_its_earlier_life_released(place: Place) -> None:
    """Numbers begin with 1 again, so the sink would take new outputs for known ones: it names whose it has."""
    kit = Kit(job_writing(place.target), settings=EARLY)
    kit.advance(50)
    kit.feed(LINES, None, "a b")
    kit.advance(50)
    kit.stop()
    again = Kit(job_writing(place.target), settings=EARLY)
    with pytest.raises(Halted, match=r"outputs 1 to 2|an earlier life"):
        again.advance(50)
    again.crash_all()


def test_a_table_that_was_restored_from_a_backup_halts(tmp_path: Path) -> None:
    """It lacks rows that the job keeps no more, and says which."""
    place = Place("sqlite", tmp_path)
    kit = Kit(job_writing(place.target), settings=Settings(sink_delivery="early", checkpoint_interval_ms=50))
    kit.feed(LINES, None, "a b")
    kit.run()
    kit.stop()
    backup = place.database.read_bytes()
    kit.feed(LINES, None, "c")
    kit.run()
    kit.stop()
    place.database.write_bytes(backup)
    kit.feed(LINES, None, "d")
    with pytest.raises(Halted, match=r"has outputs 1 to 2 .* those up to 3 were released .* set seq = 3"):
        kit.advance(50)
    kit.crash_all()


def test_files_that_were_taken_away_do_not_come_again(tmp_path: Path) -> None:
    """A reader has moved all files of the job, the newest, too, while it was stopped."""
    place = Place("files", tmp_path)
    kit = Kit(job_writing(place.target), settings=Settings(sink_delivery="early", checkpoint_interval_ms=50))
    kit.feed(LINES, None, "a b")
    kit.run()
    kit.stop()
    taken = [place.files / name for name in place.names()]
    contents = b"".join(path.read_bytes() for path in taken)
    for path in taken:
        path.unlink()
    kit.feed(LINES, None, "c")
    kit.run()
    kit.stop()
    (new,) = place.names()
    assert new.startswith("part-count-0-seq-000000000000003-000000000000003-")
    assert contents + (place.files / new).read_bytes() == (
        b'{"number":1,"word":"a"}\n{"number":2,"word":"b"}\n{"number":3,"word":"c"}\n'
    )


def test_an_account_that_something_else_has_changed_is_put_back(tmp_path: Path) -> None:
    """H041, H043: a row that is gone, or says another number, releases nothing; once it is right, the task goes on."""
    place = Place("sqlite", tmp_path)
    kit = Kit(job_writing(place.target), settings=EARLY)
    kit.advance(50)
    kit.feed(LINES, None, "a b")
    kit.advance(50)
    words = ["a", "b"]
    assert place.words() == words
    for code, damage in (
        ("GRETE-H043", "UPDATE grete_released SET seq = 1"),
        ("GRETE-H041", "DELETE FROM grete_released"),
    ):
        ((job, task, *row),) = place.ask("SELECT * FROM grete_released")
        place.ask(damage)
        kit.feed(LINES, None, code)
        with pytest.raises(Halted, match=code):
            kit.advance(50)
        assert place.words() == words
        place.ask("DELETE FROM grete_released")
        place.ask(f"INSERT INTO grete_released VALUES {(job, task, *row)}")
        kit.crash("count")
        kit.advance(50)
        words.append(code)
        assert place.words() == words
    kit.stop()
