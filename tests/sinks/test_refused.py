"""Outputs that a sink refuses for good, with errors=: each is a letter or in the sink, once, whatever crashes (S2a)."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from grete import DeadLetter, Files, Http, Input, Job, Output, Record, Table, Task, Topic, json, utf8
from grete.api.tasks.mode import Mode
from grete.api.topics.topic import Errors
from grete.errors import FrameworkError, GraphError, Halted, OutputRefused
from grete.execution.timing.reserved_stores import OUTBOX
from grete.settings import Settings
from grete.testing import Kit
from tests.execution.harness import Rig
from tests.sinks.service import Service, serving
from tests.sinks.test_postgres import Order
from tests.sinks.test_postgres import database as on_server
from tests.sinks.test_sqlite import database

LINES = Topic("lines", key=utf8, value=utf8)
LETTERS = Topic("letters", key=utf8, value=utf8)
T = TypeVar("T")
SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=1)


@pytest.fixture
def service() -> Iterator[Service]:
    """Yield a service that takes everything but "bad" lines."""
    with serving() as made:
        yield made


def posting(url: str, errors: Errors) -> Job:
    """Return a job that posts lines."""

    class Posts(Task):
        lines = Input(LINES)
        out = Output(Http(url, utf8), errors=errors)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    return Job("posting", stages=[Posts])


def refusing(body: bytes) -> int | None:
    """Return the answer to what the service does not want."""
    return 422 if body.startswith(b"bad") else None


def test_an_output_that_is_refused_is_a_letter_and_the_next_ones_are_sent(service: Service) -> None:
    """With the output as it was sent, and what the service said."""
    service.refuses = refusing
    kit = Kit(posting(service.url, DeadLetter(LETTERS)), settings=SETTINGS)
    for line in ("a", "bad b", "c"):
        kit.feed(LINES, "k", line)
    kit.run()
    assert service.bodies == [b"a", b"c"]
    (letter,) = kit.outputs(LETTERS)
    told = {name: (value or b"").decode() for name, value in letter.headers}
    assert not letter.key
    assert letters(kit) == ["bad b"]
    key = told.pop("grete.idempotency_key")
    assert key.startswith("posting/posts-0/out/")
    assert key.endswith("/1")
    error = told.pop("grete.error")
    assert error.startswith(f"OutputRefused: web service {service.url.partition('?')[0]} has answered 422 to the")
    assert error.endswith(f"{key}: said why")
    assert told.pop("grete.checkpoint").isdecimal()
    assert told == {
        "grete.stage": "posts",
        "grete.partition": "0",
        "grete.output": "out",
        "grete.sink": f"web service {service.url.partition('?')[0]}",
        "grete.number": "1",
    }
    kit.stop()


def letters(kit: Kit) -> list[str]:
    """Return the values of the letters, in their order."""
    return [letter.value or "" for letter in kit.outputs(LETTERS)]


def fed(kit: Kit) -> None:
    """Feed lines for several checkpoints, of some of which all are refused."""
    for number in range(9):
        kit.feed(LINES, "k", f"bad {number}" if number in (1, 3, 4, 5, 8) else f"{number}")
        if number % 3 == 2:
            kit.process()
            kit.advance(60)
    kit.run()


GOOD = ["0", "2", "6", "7"]
BAD = [f"bad {number}" for number in (1, 3, 4, 5, 8)]


def crashed_everywhere(play: Callable[[int, bool], int]) -> None:
    """Play a story with a crash behind each of its steps, by turns with and without the disk; step 0: no crash."""
    steps = play(0, False)
    assert steps > 30
    for step in range(1, steps):
        play(step, step % 2 == 1)


def test_crashes_at_any_step_leave_each_output_sent_or_a_letter() -> None:
    """Once, whichever it is: a letter and the note of it are one checkpoint."""

    def play(step: int, other_host: bool) -> int:
        with serving() as service:
            service.refuses = refusing
            service.faults = [200, 503, "silent"]
            with Kit(posting(service.url, DeadLetter(LETTERS)), settings=SETTINGS) as kit:
                if step:
                    kit.crash_at(step, other_host=other_host)
                fed(kit)
                assert (service.bodies, letters(kit)) == ([line.encode() for line in GOOD], BAD), (step, other_host)
                kit.stop()
                return kit.steps

    crashed_everywhere(play)


def table_at(path: Path) -> str:
    """Make a database with a table of lines that takes no bad ones; return its url."""
    statements = "CREATE TABLE lines (line TEXT CHECK (line NOT LIKE 'bad%'))", "CREATE TABLE more (line TEXT NOT NULL)"
    database(path, *statements)
    return str(path)


def inserting(url: str, errors: Errors) -> Job:
    """Return a job that inserts lines into one table, whose rows may be refused, and into another one."""

    class Inserts(Task):
        lines = Input(LINES)
        out = Output(Table(url, "lines", json, columns=["line"]), errors=errors)
        more = Output(Table(url, "more", json, columns=["line"]))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, {"line": record.value})
            self.more.send(None, {"line": record.value})

    return Job("inserting", stages=[Inserts])


def lines_in(url: str, table: str = "lines") -> list[str]:
    """Return the rows of a table, in the order of their insertion."""
    return [line for (line,) in database(Path(url), f"SELECT line FROM {table} ORDER BY rowid")]


def test_crashes_at_any_step_leave_each_row_in_the_table_or_a_letter(tmp_path: Path) -> None:
    """Once, whichever it is. The database knows nothing of letters: it gets the rest once they are committed."""

    def play(step: int, other_host: bool) -> int:
        url = table_at(tmp_path / f"{step}-{other_host}.db")
        with Kit(inserting(url, DeadLetter(LETTERS)), settings=SETTINGS) as kit:
            if step:
                kit.crash_at(step, other_host=other_host)
            fed(kit)
            found = lines_in(url), [line["line"] for line in map(msgspec.json.decode, letters(kit))]
            assert found == (GOOD, BAD), (step, other_host)
            assert lines_in(url, "more") == sorted(GOOD + BAD, key=lambda line: line[-1])
            kit.stop()
            return kit.steps

    crashed_everywhere(play)


def test_one_wait_does_for_all_checkpoints_that_wait(tmp_path: Path) -> None:
    """A database that was away has many of them: what it refuses of all is set aside in one checkpoint."""
    url = table_at(tmp_path / "lines.db")
    rig = Rig(inserting(url, DeadLetter(LETTERS)))
    for number in range(5):
        rig.rows("lines", [(b"k", b"bad %d" % number, 1), (b"k", b"%d" % number, 2)])
        rig.freeze()
        assert rig.overlay.apply_chunk(b"pointer")
        rig.processor.after_commit()
    rig.settle()
    outbox = rig.processor.outbox
    assert (outbox.refusals.due, outbox.may_end, outbox.settled, lines_in(url)) == (True, True, False, [])
    outbox.refusals.set_aside()
    assert [topic for topic, *_ in rig.external()] == ["letters"] * 5
    rig.settle()
    assert lines_in(url) == [], "before the letters are committed"
    rig.commit()
    assert lines_in(url) == [str(number) for number in range(5)]
    rig.commit()
    assert outbox.settled
    assert [key for key, _ in rig.overlay.store(OUTBOX).scan()] == [b"account", b"nonce"]


def test_an_error_of_the_table_makes_no_letters_of_its_rows(tmp_path: Path) -> None:
    """A column is gone: a person must look, whatever the policy."""
    url = table_at(tmp_path / "lines.db")
    kit = Kit(inserting(url, DeadLetter(LETTERS)), settings=SETTINGS)
    kit.feed(LINES, "k", "a")
    kit.run()
    database(Path(url), "ALTER TABLE lines RENAME COLUMN line TO gone")
    kit.feed(LINES, "k", "b")
    with pytest.raises(Halted, match=r"GRETE-H040: .*no column named line"):
        kit.run()
    assert letters(kit) == []


@pytest.mark.postgres
def test_rows_that_a_server_refuses_are_letters(postgres_database: str) -> None:
    """A constraint, a type, a trigger and a value that no text may hold refuse one each; the others are written."""
    shop = postgres_database
    on_server(
        shop,
        "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL CHECK (item <> ''))",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$",
        "CREATE TRIGGER today BEFORE INSERT ON orders FOR EACH ROW WHEN (new.id = 7) EXECUTE FUNCTION refuse()",
    )

    class Export(Task):
        lines = Input(Topic("lines", key=utf8, value=json(Order)))
        out = Output(Table(shop, "orders", json(Order)), errors=DeadLetter(LETTERS))

        def process(self, record: Record[str, Order]) -> None:
            self.out.send(None, record.value)

    rig = Rig(Job("shop", stages=[Export]))
    rows = [(1, "a"), (2, ""), (3, "c"), (3, "again"), (1 << 40, "d"), (7, "e"), (8, "f\0"), (9, "g")]
    rig.rows("lines", [(b"k", msgspec.json.encode({"id": number, "item": item}), 1) for number, item in rows])
    rig.commit()
    rig.processor.outbox.refusals.set_aside()
    refused = [msgspec.json.decode(value or b"")["id"] for _, _, value, _ in rig.external()]
    assert refused == [2, 3, 1 << 40, 7, 8]
    rig.commit()
    assert on_server(shop, "SELECT id, item FROM orders ORDER BY id") == [(1, "a"), (3, "c"), (9, "g")]


def test_what_is_a_letter_is_not_sent_again(service: Service) -> None:
    """The next process leaves it out, whatever the service would say by then, and numbers the others as before."""
    service.refuses = refusing
    kit = Kit(posting(service.url, DeadLetter(LETTERS)), settings=SETTINGS)
    for line in ("a", "bad b", "c"):
        kit.feed(LINES, "k", line)
    kit.run()
    keys = [headers["Idempotency-Key"] for _, headers in service.requests]
    service.refuses = lambda _: None
    kit.crash("posts")
    kit.feed(LINES, "k", "d")
    kit.run()
    assert (service.bodies, letters(kit)) == ([b"a", b"c", b"d"], ["bad b"])
    assert [key.rpartition("/")[2] for key in keys] == ["0", "1", "2"]
    kit.stop()


class Held(Executor):
    """Does steps when it is told to, as a thread may do them late."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Return the future of a step that has not begun."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except FrameworkError as error:
                future.set_exception(error)

        self.steps.append(run)
        return future

    def work(self, rig: Rig, is_done: Callable[[], bool]) -> None:
        """Do one step after another, and let the outbox take each result, until something is so."""
        for _ in range(50):
            if self.steps:
                self.steps.pop(0)()
            if is_done():
                return
            rig.settle()
        raise AssertionError("50 steps were too few")


def test_a_refusal_that_comes_behind_a_rollback_is_not_lost(service: Service) -> None:
    """The task has gone back to its last commit when the answer arrives: it asks its sink once more, and is told."""
    service.refuses = refusing
    rig = Rig(posting(service.url, DeadLetter(LETTERS)))
    held = Held()
    outbox = rig.processor.outbox
    outbox._background._executor = held
    rig.rows("lines", [(b"k", line, 1) for line in (b"a", b"bad b", b"c")])
    rig.commit()
    held.work(rig, lambda: bool(service.requests))
    rig.rollback()  # what the step has found belongs to a plan that was given up
    held.work(rig, lambda: outbox.refusals.due)
    outbox.refusals.set_aside()
    assert [value for _, _, value, _ in rig.external()] == [b"bad b"]
    held.work(rig, lambda: not outbox._pending.committed)
    assert service.bodies == [b"a", b"c"]


def test_a_dropped_output_is_counted(service: Service) -> None:
    """The task goes on without it."""
    service.refuses = refusing
    kit = Kit(posting(service.url, "drop"), settings=SETTINGS)
    fed(kit)
    assert service.bodies == [line.encode() for line in GOOD]
    assert sum(task.process.driver.parts.runner.dropped["failed"] for task in kit._tasks.values() if task.process) == 5
    kit.stop()


@pytest.mark.parametrize("status", [301, 401, 403, 407])
def test_an_answer_that_no_output_can_help_stops_the_task(service: Service, status: int) -> None:
    """A token that has expired makes no letters of all outputs."""
    service.refuses = lambda _: status
    kit = Kit(posting(service.url, DeadLetter(LETTERS)), settings=SETTINGS)
    kit.feed(LINES, "k", "a")
    with pytest.raises(Exception, match=f"GRETE-H040: .* has answered {status}"):
        kit.run()
    assert letters(kit) == []


def test_without_a_policy_the_task_stops_and_says_what_it_may_say(service: Service) -> None:
    """The default stays as it is."""
    service.refuses = refusing
    kit = Kit(posting(service.url, "fail"), settings=SETTINGS)
    kit.feed(LINES, "k", "bad a")
    with pytest.raises(OutputRefused, match=r"422.*is sent first.*Output\(…, errors=DeadLetter\(Topic\(…\)\)\)"):
        kit.run()


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("target", [Topic("out", key=utf8, value=utf8), Files("out", json), Http("http://x/", utf8)])
def test_only_an_output_that_may_be_refused_has_a_policy(mode: Mode, target: Any) -> None:
    """Letters of a deterministic task would depend on answers."""

    class Writes(Task):
        lines = Input(LINES)
        out: Output[Any, str] = Output(target, errors=DeadLetter(LETTERS))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    why = "topic and files refuse no output" if not isinstance(target, Http) else "in deterministic mode: a letter"
    fine = isinstance(target, Http) and mode == "aligned"
    with nullcontext() if fine else pytest.raises(GraphError, match=why):
        Job("j", stages=[Writes], mode=mode)
