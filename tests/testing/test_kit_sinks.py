"""The kit shows what tasks give to files, tables, services and systems of their users, and compares it."""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grete import DeadLetter, External, Files, Http, Input, Job, Output, Record, Table, Task, Topic, json, utf8
from grete.errors import ConfigError
from grete.settings import Settings
from grete.testing import Kit
from grete.testing.service import Dropped, FakeService, Reply, Silent
from tests.testing.third_party import ListSink, Place


class Row(msgspec.Struct):
    """A row of the table."""

    item: str
    pieces: int


moves = Topic("moves", key=utf8, value=utf8)
done = Topic("done", key=utf8, value=utf8)
place = Place()


class Export(Task):
    """Sends each move to one of everything that is no topic, and to a topic."""

    moves = Input(moves)
    lines = Output(Files("archive", utf8))
    rows = Output(Table("shop.db", "stock", json(Row), key=["item"]))
    asked = Output(Http("env:SHOP", utf8, timeout_ms=300))
    ours = Output(External("ours", json, lambda: ListSink(place)))
    done = Output(done)

    def process(self, record: Record[str, str]) -> None:
        """Send it."""
        self.lines.send(None, record.value)
        self.asked.send(None, record.value)
        self.ours.send(None, {"task": record.key, "number": len(record.value)})
        self.rows.send(None, Row(record.key, len(record.value)))
        self.done.send(record.key, record.value)


class Notify(Task):
    """Sends each move to the service."""

    moves = Input(moves)
    out = Output(Http("env:SHOP", utf8, timeout_ms=300))

    def process(self, record: Record[str, str]) -> None:
        """Send it."""
        self.out.send(None, record.value)


class Forgetful(Task):
    """Counts in an attribute, which a crash resets: a mistake that only the service would show."""

    moves = Input(moves)
    out = Output(Http("http://shop.invalid/", utf8))

    def init(self) -> None:
        """Begin to count."""
        self.seen = 0

    def process(self, record: Record[str, str]) -> None:
        """Send the number."""
        self.seen += 1
        self.out.send(None, f"{self.seen} {record.value}")


job = Job("export", stages=[Export], partitions=2)
notify = Job("notify", stages=[Notify])
FED = [("tea", "a"), ("salt", "bb"), ("tea", "ccc")]
TEXT = """\
output export/lines, partition 0
  'a'
  'bb'
  'ccc'
output export/lines, partition 1
output export/rows, partition 0
  Row(item='salt', pieces=2)
  Row(item='tea', pieces=3)
output export/rows, partition 1
"""


@pytest.fixture(autouse=True)
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A service, and a folder with the database; the list is empty."""
    monkeypatch.chdir(tmp_path)
    database = sqlite3.connect("shop.db")
    database.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER)")
    database.close()
    place.rows.clear()
    place.applied.clear()
    with FakeService() as made:
        monkeypatch.setenv("SHOP", made.url)
        yield made


def fed(kit: Kit) -> Kit:
    """Feed a kit the moves, with time between them."""
    for key, value in FED:
        kit.feed(moves, key, value, partition=0)
        kit.advance(300)
    return kit


@pytest.mark.parametrize("discard_sinks", [False, True])
def test_outputs_are_the_values_that_sinks_took(service: FakeService, *, discard_sinks: bool) -> None:
    """Each once and in order through crashes, of whatever kind the sink is, whether it is there or not."""
    kit = fed(Kit(job, discard_sinks=discard_sinks))
    kit.run(crashes=6, seed=3)
    values = [value for _, value in FED]
    assert kit.outputs(Export.lines) == kit.outputs(Export.asked) == kit.outputs(Export.lines, 0) == values
    assert kit.outputs(Export.rows) == [Row(key, len(value)) for key, value in FED]
    assert kit.outputs(Export.ours) == [{"task": key, "number": len(value)} for key, value in FED]
    assert kit.outputs(Export.lines, 1) == []
    assert [record.value for record in kit.outputs(Export.done)] == values
    assert kit.text(Export.lines, Export.rows) == TEXT
    assert service.bodies == ([] if discard_sinks else [value.encode() for value in values])
    assert sorted(place.rows) == ([] if discard_sinks else [("salt", 2), ("tea", 1), ("tea", 3)])


def test_outputs_before_the_commit_are_none() -> None:
    """A sink has nothing that is processed and not committed."""
    kit = Kit(job)
    kit.feed(moves, "tea", "a")
    kit.process()
    assert kit.outputs(Export.lines) == kit.outputs(Export.ours) == []
    kit.run()
    assert kit.outputs(Export.lines) == ["a"]


def test_early_outputs_are_shown_too() -> None:
    """A deterministic task releases to files ahead of its commit: the kit has them at once, and once."""
    early = Settings(sink_delivery="early")
    kit = Kit(Job("export", stages=[Export], partitions=2, mode="deterministic"), settings=early)
    for key, value in FED:
        kit.feed(moves, key, value, partition=0)
    kit.run(crashes=6, seed=1)
    assert kit.outputs(Export.lines) == [value for _, value in FED]
    assert kit.outputs(Export.rows) == [Row(key, len(value)) for key, value in FED]


def test_crashes_are_compared_by_what_sinks_would_get(service: FakeService) -> None:
    """No place of a crash changes anything; nothing is asked of the service meanwhile."""
    kit = fed(Kit(job, discard_sinks=True))
    assert kit.check_crashes(at_most=40) == 40
    assert service.requests == []


def test_a_mistake_that_only_a_service_would_show_is_found() -> None:
    """A number from an attribute begins again after a crash: the error shows both values."""
    kit = fed(Kit(Job("counting", stages=[Forgetful]), discard_sinks=True))
    with pytest.raises(AssertionError, match=r"(?s)result is another.*-  '2 bb'.*\+  '1 bb'"):
        kit.check_crashes()


@pytest.mark.parametrize(
    "fault",
    [Reply(503), Reply(429, headers={"Retry-After": "1"}), Dropped(), Dropped(taken=True), Silent(taken=True)],
)
def test_a_service_that_fails_once_has_all_outputs_once(service: FakeService, fault: Any) -> None:
    """The third request fails, is sent again with the same key, and takes effect once."""
    service.script[3] = fault
    kit = fed(Kit(notify))
    kit.run()
    assert service.bodies == [b"a", b"bb", b"ccc"]
    third, again = service.requests[2], service.requests[3]
    assert len(service.requests) == 4
    assert third.key is not None
    assert (third.key, third.body) == (again.key, again.body)
    was_taken = isinstance(fault, Dropped | Silent) and fault.taken
    assert (third.taken, again.taken) == (was_taken, not was_taken)
    assert kit.outputs(Notify.out) == ["a", "bb", "ccc"]


def test_a_key_with_another_body_is_refused(service: FakeService) -> None:
    """The service says so, and does not do it."""
    headers = {"Idempotency-Key": "k"}
    assert service.reply("POST", "/", headers, b"a") == Reply()
    assert service.reply("POST", "/", headers, b"a") == Reply()
    refused = service.reply("POST", "/", headers, b"b")
    assert isinstance(refused, Reply)
    assert refused.status == 422
    assert [request.taken for request in service.requests] == [True, False, False]


def test_the_fixture_is_a_service(grete_service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test asks for it by its name."""
    monkeypatch.setenv("SHOP", grete_service.url)
    kit = fed(Kit(notify))
    kit.run(crashes=3, seed=1)
    assert grete_service.bodies == [b"a", b"bb", b"ccc"]


def test_answers_are_made_of_requests() -> None:
    """``answer`` sees method, path and body; a script goes before it."""
    with FakeService({2: Reply(404)}, lambda request: Reply(body=request.path.encode())) as asked:
        assert asked.reply("GET", "/tea", {}, b"") == Reply(body=b"/tea")
        assert asked.reply("GET", "/tea", {}, b"") == Reply(404)


def test_misuse_is_told() -> None:
    """An output of another job, a partition that is none, and a sink that cannot be watched."""

    class Slotted:
        __slots__ = ("name",)
        open = begin = write = commit = close = lambda *_: None

        def __init__(self) -> None:
            self.name = "slots"

    class Narrow(Task):
        moves = Input(moves)
        out = Output(External("slots", utf8, Slotted))  # type: ignore[arg-type]  # less than a sink

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    kit = Kit(job)
    with pytest.raises(ConfigError, match="no stage of job 'export' has the output to Http"):
        kit.outputs(Notify.out)
    with pytest.raises(ConfigError, match="stage 'export' has partitions 0 to 1, not 2"):
        kit.outputs(Export.lines, 2)
    narrow = Kit(Job("narrow", stages=[Narrow]))
    narrow.feed(moves, "a", "b")
    with pytest.raises(ConfigError, match="cannot see what slots takes: Slotted has __slots__"):
        narrow.run()


class Aside(Task):
    """Sends each move to the service, and sets aside what that refuses."""

    moves = Input(moves)
    out = Output(Http("env:SHOP", utf8), errors=DeadLetter(done))

    def process(self, record: Record[str, str]) -> None:
        """Send it."""
        self.out.send(None, record.value)


def test_what_a_service_refuses_is_a_letter_and_no_output(service: FakeService) -> None:
    """The other values are shown once, in their order, also those of the same checkpoint."""
    service.script[2] = Reply(422)
    kit = Kit(Job("aside", stages=[Aside]))
    for key, value in FED:
        kit.feed(moves, key, value)
    kit.run(crashes=2, seed=2)
    assert kit.outputs(Aside.out) == ["a", "ccc"]
    assert [record.value for record in kit.outputs(done)] == ["bb"]
    assert service.bodies == [b"a", b"ccc"]
