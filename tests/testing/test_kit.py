"""The kit itself: what a reader sees and when, what a crash takes, and that misuse is told."""

import doctest
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import grete.testing
from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Topic,
    TumblingWindow,
    Window,
    bytes_serde,
    int64,
    json,
    utf8,
)
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, GraphError, SerdeError, TaskError
from grete.settings import Settings
from grete.testing import Kit
from grete.testing.job_host import START_MS

words = Topic("words", key=utf8, value=utf8)
raw_words = Topic("words", key=bytes_serde, value=bytes_serde)
by_word = Topic("by-word", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=int64)
letters = Topic("letters", key=bytes_serde, value=bytes_serde)


class Part(Task):
    """Sends each word on, keyed by itself."""

    lines = Input(words)
    out = Output(by_word)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, 1, headers=record.headers)


class Add(Task):
    """Counts words; one that cannot be counted goes to the dead letters."""

    words = Input(by_word, errors=DeadLetter(letters))
    sums = Store("sums", key=utf8, value=int64)
    out = Output(totals)
    closed: ClassVar[list[int]] = []

    def process(self, record: Record[str, int]) -> None:
        n = self.sums.get(record.key, 0) + record.value
        self.sums.put(record.key, n)
        self.out.send(record.key, n, headers=record.headers)
        if record.key == "bad":
            raise ValueError("a bad word")

    def close(self) -> None:
        self.closed.append(len(dict(self.sums.all())))


job = Job("adding", stages=[Part, Add], partitions=2)


class Refuse(Task):
    """Takes no word but good."""

    lines = Input(words)
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.value, record.partition)
        if record.value != "good":
            raise ValueError("not good")


class Minute(Task):
    """Counts per minute."""

    lines = Input(words)
    counts = TumblingWindow("counts", size_ms=60_000, key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        self.counts.update(record.value, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)


def test_the_example_in_the_documentation_runs() -> None:
    """The docstring of grete.testing is a program, and says what it prints."""
    result = doctest.testmod(grete.testing)
    assert result.attempted > 10
    assert result.failed == 0


def test_a_reader_sees_only_what_is_committed() -> None:
    """Nothing is visible while time does not pass; each checkpoint becomes visible as time passes (S1)."""
    kit = Kit(job)
    kit.feed(words, "line", "a b a")
    kit.process()
    assert (kit.pairs(totals), kit.state(Add.sums)) == ([], {})
    kit.advance(kit.settings.checkpoint_interval_ms)
    assert sorted(kit.pairs(totals)) == [("a", 1), ("a", 2), ("b", 1)]
    assert kit.state(Add.sums) == {"a": 2, "b": 1}


def test_time_passes_only_when_asked() -> None:
    """``process`` takes no time, ``advance`` what it is given, ``run`` on a job at rest none."""
    kit = Kit(job)
    kit.process()
    assert kit.now_ms == START_MS
    kit.advance(1234)
    assert kit.now_ms == START_MS + 1234
    kit.run()
    before = kit.now_ms
    kit.run()
    assert kit.now_ms == before


def test_the_same_seed_is_the_same_run() -> None:
    """With crashes at random moments, all counters, outputs and the clock repeat."""
    runs = []
    for _ in range(2):
        kit = Kit(job)
        for number in range(20):
            kit.feed(words, f"line {number}", f"a b {number}")
        kit.run(crashes=10, seed=7)
        runs.append((kit.counters, kit.outputs(totals), kit.now_ms))
    assert runs[0] == runs[1]
    assert runs[0][0]["restores"] > 0
    assert runs[0][0]["redos"] > 0


def test_records_carry_what_they_were_fed_with() -> None:
    """Timestamp, headers and partition of a record arrive, and its outputs inherit the timestamp."""
    kit = Kit(job)
    kit.feed(words, "line", "a", timestamp=5, headers=[("who", b"me")], partition=1)
    kit.run()
    (record,) = kit.outputs(totals)
    assert (record.key, record.value, record.timestamp, record.headers) == ("a", 1, 5, (("who", b"me"),))


def test_partitions_are_chosen_as_everywhere() -> None:
    """A key always goes to one partition; records without a key go to each in turn; the count can be changed."""
    kit = Kit(Job("refusing", stages=[Refuse]), partitions=3)
    for _ in range(3):
        kit.feed(words, None, "good")
    kit.run()
    assert [kit.state(Refuse.seen, partition) for partition in range(3)] == [{"good": 0}, {"good": 1}, {"good": 2}]
    with pytest.raises(ConfigError, match=r"'good' of store 'seen' is in partitions 0 and 1"):
        kit.state(Refuse.seen)
    for key, partition in {"pear": 0, "apple": 1, "k0": 2}.items():  # as Kafka's own clients place them
        kit = Kit(Job("refusing", stages=[Refuse]), partitions=3)
        kit.feed(words, key, "good")
        kit.run()
        assert [number for number in range(3) if kit.state(Refuse.seen, number)] == [partition]


def test_a_store_whose_keys_no_dict_can_hold_is_read_as_pairs() -> None:
    """Keys that are JSON objects, as Debezium has them: a dict of them is refused, with the way that works."""
    changes = Topic("changes", key=json, value=utf8)

    class Keep(Task):
        source = Input(changes)
        rows = Store("rows", key=json, value=utf8)

        def process(self, record: Record[Any, str]) -> None:
            self.rows.put(record.key, record.value)

    kit = Kit(Job("keep", stages=[Keep]), partitions=2)
    for number in (2, 1):
        kit.feed(changes, {"id": number}, f"row {number}")
    kit.run()
    assert kit.pairs(Keep.rows) == [({"id": 1}, "row 1"), ({"id": 2}, "row 2")]
    with pytest.raises(ConfigError, match=r"a key such as \{'id': 1\} cannot be the key of a dict.*kit.pairs\(store\)"):
        kit.state(Keep.rows)


def test_dead_letters_are_outputs() -> None:
    """A record that fails leaves its letter and nothing else."""
    kit = Kit(job)
    kit.feed(words, "line", "good bad good")
    kit.run()
    assert dict(kit.pairs(totals)) == kit.state(Add.sums) == {"good": 2}
    (letter,) = kit.outputs(letters)
    assert letter.key == b"bad"
    assert dict(letter.headers)["grete.error"] == b"ValueError: a bad word"


def test_what_the_task_raises_comes_out() -> None:
    """The error names the record; nothing of the batch is committed; the next run meets it again."""
    kit = Kit(Job("refusing", stages=[Refuse]))
    kit.feed(words, "line", "good")
    kit.feed(words, "line", "ugly")
    for _ in range(2):
        with pytest.raises(TaskError, match=r"topic words .*offset 1.*ValueError: not good"):
            kit.run()
    assert kit.state(Refuse.seen) == {}


def test_bytes_that_no_serde_takes_can_be_fed() -> None:
    """A topic of the same name with other serdes feeds what a foreign writer might."""
    kit = Kit(job)
    kit.feed(raw_words, b"line", b"\xff")
    with pytest.raises(TaskError, match="serde utf8 cannot decode"):
        kit.run()
    with pytest.raises(SerdeError, match="serde utf8 cannot encode"):
        kit.feed(words, "line", "\ud800")


def test_a_crash_on_the_same_host_needs_no_restore() -> None:
    """The counters tell a redo from a bootstrap (R1)."""
    kit = Kit(job)
    kit.feed(words, "line", "a b")
    kit.run()
    kit.crash_all()
    kit.run()
    assert (kit.counters["redos"], kit.counters["restores"]) == (4, 0)
    kit.crash("add", 1, other_host=True)
    kit.run()
    assert (kit.counters["redos"], kit.counters["restores"]) == (4, 1)
    assert kit.state("sums") == {"a": 1, "b": 1}


def test_a_stop_commits_and_closes() -> None:
    """A graceful stop commits what was fed and closes each task; fed again, the job goes on (R6)."""
    kit = Kit(job)
    kit.feed(words, "line", "a b")
    Add.closed.clear()
    kit.stop()
    assert sum(Add.closed) == 2
    assert sorted(kit.pairs(totals)) == [("a", 1), ("b", 1)]
    kit.feed(words, "line", "a")
    kit.run()
    assert kit.state(Add.sums) == {"a": 2, "b": 1}
    assert kit.counters["restores"] == 0


def test_a_rollback_is_one() -> None:
    """The task lives, gives up what its dead producer sent, and ends with the same sums (R4)."""
    kit = Kit(job, partitions=1)
    kit.feed(words, "line", "a b")
    kit.rollback(Add)
    kit.run()
    assert kit.counters["rollbacks"] == 1
    assert kit.state(Add.sums) == {"a": 1, "b": 1}


def test_a_rollback_needs_something_to_take_back() -> None:
    """A task without uncommitted input, a source among them, is refused with the reason."""
    kit = Kit(job)
    kit.feed(words, "line", "a b")
    kit.run()
    with pytest.raises(AssertionError, match="add-0 has no uncommitted records of another stage"):
        kit.rollback(Add)
    with pytest.raises(AssertionError, match="part-0 has no uncommitted records"):
        kit.rollback(Part)


def test_windows_are_state_and_close_by_event_time() -> None:
    """An open window is seen in the state; it closes with a later record, not with the kit's clock."""
    kit = Kit(Job("minutes", stages=[Minute]))
    kit.feed(words, None, "a", timestamp=0)
    kit.feed(words, None, "a", timestamp=59_999)
    kit.advance(120_000)
    assert kit.state(Minute.counts.panes) == kit.state("counts") == {(0, "a"): 2}
    kit.feed(words, None, "b", timestamp=60_000)
    kit.run()
    assert kit.pairs(totals) == [("a", 2)]


def test_a_job_without_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that never ends ends, naming the tasks."""
    monkeypatch.setattr("grete.testing.job_host.INTERVALS_MAX", 1)
    kit = Kit(job)
    kit.feed(words, "line", "a")
    with pytest.raises(AssertionError, match=r"not at rest after 1 checkpoints \(.*part-"):
        kit.run()


@pytest.mark.parametrize(
    ("misuse", "told"),
    [
        (lambda kit: kit.feed(by_word, "a", 1), "'by-word' is not fed from outside in job 'adding'; these are: words"),
        (lambda kit: kit.feed(words, "a", "b", partition=2), "topic words has partitions 0 to 1, not 2"),
        (lambda kit: kit.outputs(by_word), "'by-word' is not written to the outside .*: totals, letters"),
        (lambda kit: kit.outputs(words), "'words' is not written to the outside"),
        (lambda kit: kit.outputs(5), "5 is no Topic: give the topic itself"),
        (lambda kit: kit.state("products"), "store 'products' is found 0 times: is it declared in a stage"),
        (lambda kit: kit.state(Refuse.seen), "store 'seen' is found 0 times"),
        (lambda kit: kit.state(Add.sums, 2), "stage 'add' has partitions 0 to 1, not 2"),
        (lambda kit: kit.crash(Refuse), "no stage 'refuse': it has part, add"),
        (lambda kit: kit.crash(Add, 2), "stage 'add' has partitions 0 to 1, not 2"),
        (lambda _: Kit(job, partitions=0), "partitions = 0"),
        (lambda _: Kit(job, settings=Settings(checkpoint_interval_ms=0)), "checkpoint_interval_ms = 0"),
    ],
)
def test_misuse_is_told(misuse: Callable[[Kit], object], told: str) -> None:
    """Each wrong name or number is refused with what there is instead."""
    with pytest.raises((ConfigError, GraphError), match=told):
        misuse(Kit(job))


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_hours_of_an_idle_job_pass_in_few_steps(mode: Mode) -> None:
    """At rest time goes on in one step; what comes behind it is processed, and a checkpoint has it."""
    kit = Kit(Job("adding", stages=[Part, Add], partitions=2, mode=mode))
    kit.feed(words, None, "a b")
    kit.run()
    began, commits = kit.now_ms, kit.counters["commits"]
    kit.advance(36_000_000)
    assert kit.now_ms == began + 36_000_000
    assert kit.counters["commits"] - commits < 10  # and not 180,000 intervals
    kit.crash(Part)
    kit.feed(words, None, "a")
    kit.advance(1_000)
    assert kit.state(Add.sums) == {"a": 2, "b": 1}
