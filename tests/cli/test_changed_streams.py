"""Records between stages and waiting timers, when a job's code is deployed again with changes."""

from pathlib import Path
from typing import Any

import pytest

from grete import Input, Job, Output, Record, SchemaRegistry, Serde, Task, Timer, Timers, Topic, int64, utf8
from grete.api.jobs.definition import changes_of_flow, changes_of_job, define
from grete.errors import ConfigError
from tests.cli.test_state_commands import grete

CODE = """
import msgspec
from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8
class Count(msgspec.Struct):
    n: int = 1
words = Topic("words", key=utf8, value=utf8)
counted = Topic("counted", key=utf8, value=json(Count))
class Split(Task):
    words = Input(words)
    out = Output(counted)
    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, Count())
class Add(Task):
    counted = Input(counted)
    counts = Store("counts", key=utf8, value=int64)
    timers = Timers()
    def process(self, record: Record[str, Count]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + record.value.n)
        self.timers.schedule(record.timestamp + 1_000_000, record.key)
    def on_timer(self, timer: Timer) -> None:
        self.counts.delete(timer.key)
job = Job("shop", stages=[Split, Add])
"""
READ = "topic 'counted', which stage 'add' reads from another stage: its "
GONE = "stage 'add' has no Timers() any more, and those that wait would never fire: declare them again"
BACK = "put its serde back as it was; or start a job of another name"
REFUSED = [
    (
        [('"counted", key=utf8', '"counted", key=json(str)')],
        [f"{READ}key was utf8 and is json(str), so records of a key would miss its state: {BACK}"],
    ),
    ([("value=json(Count)", "value=json(dict[str, int])")], [f"{READ}value: was Count(n: int = 1) and is ", BACK]),
    ([("    n: int = 1\n", "    n: int = 1\n    cents: int\n")], ["field 'cents' of Count is new and has no default"]),
    ([("Timers()", 'Timers(clock="wall")')], [GONE]),
    ([("    timers = Timers()\n", ""), ("        self.timers.schedule", "        print")], [GONE]),
]
TAKEN = [
    ("    n: int = 1\n", "    n: int = 1\n    cents: int = 0\n"),
    ("    timers = Timers()\n", '    timers = Timers()\n    reminders = Timers(clock="wall")\n'),
]


def code(folder: Path, *changes: tuple[str, str]) -> str:
    """Write the job's code with other words in it; return its path."""
    text = CODE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    if "cents: int\n" in text:
        text = text.replace("(msgspec.Struct)", "(msgspec.Struct, kw_only=True)")
    (folder / "shop.py").write_text(text)
    return str(folder / "shop.py")


def test_records_and_timers_that_wait_find_code_that_knows_them(tmp_path: Path) -> None:
    """A key of other bytes would count from zero in another task; a timer that no code takes would never fire."""
    (tmp_path / "words.txt").write_text("fig\npear\nfig\n")
    where, lines = f"--directory={tmp_path / 'job'}", f"--input=words={tmp_path / 'words.txt'}"
    grete("run", code(tmp_path), where, lines)
    for changes, told in REFUSED:
        refused = grete("run", code(tmp_path, *changes), where, fails=ConfigError)
        assert [text for text in told if text not in refused] == []
    taken = code(tmp_path, *TAKEN)
    grete("run", taken, where, lines)
    assert grete("state", "scan", taken, "counts", where).split() == ["fig", "4", "pear", "2"]
    assert GONE.replace("()", "(clock='wall')") in grete("run", code(tmp_path), where, fails=ConfigError)


def between(serde: Serde[Any], key: Serde[Any] = utf8, *, waits: bool = False) -> Job:
    """Return a job of two stages with these serdes between them."""
    outside, inside = Topic("words", key=utf8, value=utf8), Topic("between", key=key, value=serde)

    class Sends(Task):
        words = Input(outside)
        out = Output(inside)

        def process(self, record: Record[str, str]) -> None:
            pass

    class Takes(Task):
        between = Input(inside)
        if waits:
            timers = Timers()

        def process(self, record: Record[Any, Any]) -> None:
            pass

        def on_timer(self, timer: Timer) -> None:
            pass

    return Job("between", stages=[Sends, Takes])


@pytest.mark.parametrize("sent", [False, True])
def test_a_fork_begins_with_empty_streams_but_with_the_keys_and_timers_of_the_first(sent: bool) -> None:
    """So its values may have another serde, and nothing else may differ."""
    before = define(between(int64, waits=True), {})
    changes = changes_of_flow(before, between(utf8, key=int64), sent=sent)
    assert [change.what.partition(": its ")[2][:5] for change in changes if "topic" in change.what] == [
        "key w",
        *["value"] * sent,
    ]
    assert [change.what for change in changes if "topic" not in change.what] == [
        GONE.rpartition(":")[0].replace("add", "takes")
    ]


def test_records_that_name_their_schema_may_have_another_one() -> None:
    """A schema registry reads what an older schema wrote; only their keys decide where they go."""
    registry = SchemaRegistry("mock://streams")
    old, new = (
        registry.avro({"type": "record", "name": "R", "fields": [{"name": f, "type": "long"} for f in fields]})
        for fields in ("a", "ab")
    )
    assert changes_of_job(define(between(old), {}), between(new)) == []
    (change,) = changes_of_job(define(between(old, old), {}), between(new, new))
    assert "its key was registry avro(R)" in change.what


def test_a_definition_of_before_says_nothing_of_streams_and_timers() -> None:
    """It is taken over, and the next one has them."""
    before, now = define(between(int64, waits=True), {}), between(utf8)
    for stage in before["stages"]:
        stage.pop("streams", None)
        stage.pop("timers", None)
    assert changes_of_job(before, now) == []
