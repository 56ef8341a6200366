"""Inputs that drop duplicates: by id and by sequence, against a plain set, through crashes, in both modes."""

import random
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import ById, BySequence, DeadLetter, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8
from grete.api.jobs.definition import changes_of_job, define
from grete.api.tasks.mode import Mode
from grete.api.topics.deduplicate import Deduplicate
from grete.errors import ConfigError, GraphError, TaskError
from grete.execution.limits import CLEAN_KEYS
from grete.execution.task_code.deduplication import with_number
from grete.testing import Kit

START = 1_700_000_000_000
MODES: tuple[Mode, ...] = ("aligned", "deterministic")
clicks = Topic("clicks", key=utf8, value=json)
letters = Topic("letters", key=utf8, value=json)
once = Topic("once", key=utf8, value=json)
_KINDS: dict[str, Deduplicate[str, Any]] = {
    "id": ById(lambda record: record.value["id"], horizon_ms=1_000),
    "sequence": BySequence(
        lambda record: record.value["session"], lambda record: record.value["number"], horizon_ms=1_000, gaps_max=2
    ),
}


def job_of(kind: str, mode: Mode = "aligned", *, batch: bool = False, errors: Any = "fail") -> Job:
    """Return a job that counts what is new by key and sends it on; a value with "bad" fails."""

    class Count(Task):
        clicks = Input(globals()["clicks"], errors, deduplicate=_KINDS[kind])
        counts = Store("counts", key=utf8, value=int64)
        once = Output(globals()["once"])

        def take(self, record: Record[str, Any]) -> None:
            if record.value.get("bad"):
                raise ValueError("bad")
            self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
            self.once.send(record.key, record.value)

    def process(self: Count, record: Record[str, Any]) -> None:
        self.take(record)

    def process_batch(self: Count, records: Sequence[Record[str, Any]]) -> None:
        for record in records:
            self.take(record)

    members: dict[str, Any] = {"process_batch": process_batch} if batch else {"process": process}
    return Job("dedup", [type("Count", (Count,), members)], mode=mode)


def values_out(kit: Kit) -> list[Any]:
    """Return the values that came out."""
    return [record.value for record in kit.outputs(once)]


# --- By id ---


@pytest.mark.parametrize("mode", MODES)
@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 600)), max_size=40),
    crashes=st.integers(0, 3),
    seed=st.integers(0, 1_000),
)
def test_an_id_counts_once_in_its_horizon(mode: Mode, rows: list[tuple[int, int]], crashes: int, seed: int) -> None:
    """An id is new until it was seen, and again a horizon of event time after that, whatever crashes."""
    kit, at, now, seen, expected = Kit(job_of("id", mode)), START, 0, dict[int, int](), []
    for number, (identity, later) in enumerate(rows):
        at += later - 100  # some go back
        value = {"id": f"i{identity}", "number": number}
        kit.feed(clicks, "k", value, timestamp=at)
        if identity not in seen or seen[identity] + 1_000 <= now:
            expected.append(value)
            seen[identity] = max(at, now)
        now = max(now, at)
    kit.run(crashes=crashes, seed=seed)
    assert values_out(kit) == expected


def test_old_ids_are_deleted_along_with_new_ones() -> None:
    """The ids of many horizons leave about a third more than one horizon has, whatever crashes; the oldest are gone."""
    kit = Kit(job_of("id"))
    per_horizon, horizons = 10 * CLEAN_KEYS, 12
    for number in range(per_horizon * horizons):
        kit.feed(clicks, "k", {"id": f"{number}"}, timestamp=START + number * 1_000 // per_horizon)
    kit.run(crashes=3, seed=4)
    kept = kit.state("seen-clicks")
    assert per_horizon <= len(kept) <= per_horizon * 3 // 2
    assert kit.state("counts") == {"k": per_horizon * horizons}


# --- By sequence ---


@given(st.lists(st.integers(-5, 30), max_size=60))
def test_ranges_hold_what_was_seen(numbers: list[int]) -> None:
    """The ranges are sorted, apart from each other, and hold each number that came, no other one."""
    ranges: tuple[tuple[int, int], ...] = ()
    seen = set[int]()
    for number in numbers:
        wider = with_number(ranges, number)
        assert (wider is None) == (number in seen)
        seen.add(number)
        ranges = ranges if wider is None else wider
        assert {each for first, last in ranges for each in range(first, last + 1)} == seen
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch", [False, True])
def test_numbers_that_come_late_are_not_lost(mode: Mode, batch: bool) -> None:
    """Each number of each session is processed once, in whatever order and how often it comes."""
    draw = random.Random(5)
    sent = [{"session": f"s{number % 3}", "number": number // 3} for number in range(90)]
    for begin in range(0, 90, 6):  # two of each session change places
        part = sent[begin : begin + 6]
        draw.shuffle(part)
        sent[begin : begin + 6] = part
    repeated = [each for at, each in enumerate(sent) for each in (each, *sent[max(0, at - 3) : at])]
    kit = Kit(job_of("sequence", mode, batch=batch))
    for value in repeated:
        kit.feed(clicks, "k", value, timestamp=START)
    kit.run(crashes=4, seed=9)
    by_number = itemgetter("session", "number")
    assert sorted(values_out(kit), key=by_number) == sorted(sent, key=by_number)
    _, ranges = kit.state("seen-clicks")[b"s0"]
    assert ranges == ((0, 29),)


def test_a_session_is_forgotten_after_its_horizon() -> None:
    """A session that brought nothing for the horizon begins again; one that goes on does not."""
    kit = Kit(job_of("sequence"))
    for step in range(8):
        kit.feed(clicks, "k", {"session": "on", "number": step}, timestamp=START + step * 300)
    kit.feed(clicks, "k", {"session": "off", "number": 1}, timestamp=START)
    kit.feed(clicks, "k", {"session": "on", "number": 0}, timestamp=START + 2_200)
    kit.feed(clicks, "k", {"session": "off", "number": 1}, timestamp=START + 4_000)
    kit.feed(clicks, "k", {"session": "off", "number": 1}, timestamp=START + 5_500)
    kit.run()
    off = [value for value in values_out(kit) if value["session"] == "off"]
    assert len(values_out(kit)) - len(off) == 8
    assert off == [{"session": "off", "number": 1}] * 2


def test_too_many_gaps_are_an_error_of_the_record() -> None:
    """At the bound no number is taken for lost: the record fails, and says what it would leave."""
    kit = Kit(job_of("sequence"))
    for number in (0, 2, 4):
        kit.feed(clicks, "k", {"session": "s", "number": number})
    kit.run()
    kit.feed(clicks, "k", {"session": "s", "number": 6})
    with pytest.raises(TaskError, match="number 6 would leave 3 gaps after 0, more than gaps_max = 2"):
        kit.run()


def test_a_record_behind_the_bound_goes_to_the_dead_letters() -> None:
    """With a dead-letter topic the record is set aside, and those that fill gaps are taken."""
    kit = Kit(job_of("sequence", errors=DeadLetter(letters)))
    for number in (0, 2, 4, 6, 1, 3, 6):
        kit.feed(clicks, "k", {"session": "s", "number": number})
    kit.run(crashes=2)
    assert [value["number"] for value in values_out(kit)] == [0, 2, 4, 1, 3, 6]
    assert [record.value["number"] for record in kit.outputs(letters)] == [6]


# --- Errors ---


def test_a_record_that_fails_is_not_remembered() -> None:
    """Each time it comes, it has a letter; nothing of it is in the state."""
    kit = Kit(job_of("id", errors=DeadLetter(letters)))
    for value in ({"id": "a", "bad": True}, {"id": "a", "bad": True}, {"id": "a"}, {"id": "a"}):
        kit.feed(clicks, "k", value)
    kit.run()
    assert [record.value for record in kit.outputs(letters)] == [{"id": "a", "bad": True}] * 2
    assert values_out(kit) == [{"id": "a"}]


@pytest.mark.parametrize("value", [{"id": ""}, {"id": 7}, {}])
def test_a_record_without_an_id_fails(value: dict[str, Any]) -> None:
    """An id that is empty, of another type or not there is an error of the record."""
    kit = Kit(job_of("id"))
    kit.feed(clicks, "k", value)
    with pytest.raises(TaskError, match="id"):
        kit.run()


@pytest.mark.parametrize("number", ["1", 1.5, True, 1 << 63])
def test_a_number_that_is_none_fails(number: object) -> None:
    """A number is an int of 64 bits."""
    kit = Kit(job_of("sequence"))
    kit.feed(clicks, "k", {"session": "s", "number": number})
    with pytest.raises(TaskError, match=r"need an int of 64 bits|serde json"):
        kit.run()


def test_bounds_that_are_none_are_refused() -> None:
    """A horizon is a whole number of ms from 1 on, gaps_max from 0."""
    for horizon in (0, 1.5, True):
        with pytest.raises(ConfigError, match="horizon_ms"):
            ById(repr, horizon)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ConfigError, match="gaps_max"):
        BySequence(repr, hash, 1, gaps_max=-1)


def test_what_cannot_drop_duplicates_is_refused() -> None:
    """Between stages each record comes once; and what is no ById is no way to recognise a record."""
    inner = Topic("inner", key=utf8, value=json)

    class First(Task):
        clicks_in = Input(clicks)
        out = Output(inner)

        def process(self, record: Record[str, Any]) -> None: ...

    class Second(Task):
        read = Input(inner, deduplicate=_KINDS["id"])

        def process(self, record: Record[str, Any]) -> None: ...

    class Third(Task):
        read = Input(inner, deduplicate=3)  # type: ignore[arg-type]  # the mistake

        def process(self, record: Record[str, Any]) -> None: ...

    with pytest.raises(GraphError, match="stage 'second' reads topic 'inner' with deduplicate=, and stage 'first'"):
        Job("two", [First, Second])
    with pytest.raises(GraphError, match=r"deduplicate=3: need ById"):
        Job("third", [Third])


# --- What may change ---


def test_what_was_seen_is_part_of_the_definition() -> None:
    """Another way to recognise records, or none, would take again what was taken; a horizon may change."""
    by_id = define(job_of("id"), {})
    assert [entry["name"] for entry in by_id["stages"][0]["stores"]] == ["counts", "seen-clicks"]
    assert changes_of_job(by_id, job_of("id")) == []
    (change,) = changes_of_job(by_id, job_of("sequence"))
    assert change.what.startswith("store count/seen-clicks: its value")
    without = job_of("id")
    for stage in without.stages:
        stage.inputs["clicks"] = Input(clicks)
    (change,) = changes_of_job(by_id, without)
    assert "store count/seen-clicks" in change.what
    assert "is gone" in change.what
    assert changes_of_job(define(without, {}), job_of("id")) == []


@pytest.mark.parametrize("kind", _KINDS)
def test_the_kit_shows_and_checks_it(kind: str) -> None:
    """An input's memory is one of the job's stores: it is in the text, and compared after each crash."""
    kit = Kit(job_of(kind))
    for _ in range(2):
        kit.feed(clicks, "a", {"id": "1", "session": "s", "number": 1})
    kit.run()
    text = kit.text()
    assert "store count/seen-clicks, partition 0\n  " in text
    assert "store count/counts, partition 0\n  'a': 1\n" in text
    assert kit.check_crashes(at_most=4) == 4
