"""A versioned store, against all versions of each key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Input, Job, Output, Record, Serde, Task, Topic, VersionedStore, utf8
from grete.api.stateful import key_times
from grete.api.tasks.mode import Mode
from grete.testing import Kit
from tests.joins.test_against_batch import few

rows = Topic("rows", key=utf8, value=utf8)
asks = Topic("asks", key=utf8, value=utf8)
answers = Topic("answers", key=utf8, value=utf8)
NONE = "none"


def as_of(retention_ms: int, mode: Mode = "aligned", value: Serde[Any] = utf8) -> Job:
    """Return the job that answers each record with the row of its key as of its time, and with the newest."""

    class Price(Task):
        name = "price"
        table = Input(rows)
        stream = Input(asks)
        prices = VersionedStore("prices", utf8, value, retention_ms=retention_ms)
        out = Output(answers)

        def process(self, record: Record[str, str]) -> None:
            if record.topic == rows.name:
                self.prices.put(record.key, record.timestamp, record.value)
            else:
                newest, then = self.prices.get(record.key), self.prices.get(record.key, record.timestamp, NONE)
                self.out.send(record.key, f"{record.value}: {then} {newest}")

    return Job("as-of", stages=[Price], mode=mode)


HISTORY = 20
steps = st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 6), st.integers(0, HISTORY), st.booleans())


@few
@given(
    fed=st.lists(steps, max_size=40),
    mode=st.sampled_from(["aligned", "deterministic"]),
    crashes=st.integers(0, 3),
    times_max=st.sampled_from([1, key_times.TIMES_MAX]),
)
def test_every_time_within_the_history_finds_its_version(
    fed: list[tuple[bool, str, int, int, bool]], mode: Mode, crashes: int, times_max: int
) -> None:
    """Rows and questions out of order, rows that are gone for a while: each answer is that of all versions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_times, "TIMES_MAX", times_max)
        check_answers(fed, mode, crashes)


def check_answers(fed: list[tuple[bool, str, int, int, bool]], mode: Mode, crashes: int) -> None:
    """Compare the answers, and what is left of the rows, with those of all versions."""
    kit = Kit(as_of(HISTORY, mode))
    versions: dict[str, dict[int, str | None]] = {"a": {}, "b": {}}
    expected, now = [], 0
    for number, (is_row, key, step, back, gone) in enumerate(fed):
        now += step
        at = now - back
        if is_row:
            versions[key][at] = None if gone else str(number)
            kit.feed(rows, key, versions[key][at], timestamp=at)
        else:
            known = versions[key]
            then = known[max(t for t in known if t <= at)] if any(t <= at for t in known) else None
            newest = known[max(known)] if known else None
            expected.append((key, f"{number}: {then or NONE} {newest}"))
            kit.feed(asks, key, str(number), timestamp=at)
        kit.process()
    kit.run(crashes=crashes, seed=len(fed))
    assert kit.pairs(answers) == expected
    for topic in (rows, asks):
        kit.feed(topic, "end", "", timestamp=1_000)
        kit.feed(topic, "end", "", timestamp=2_000)
    kit.run()
    left = kit.state("prices")
    assert all(value is not None for value in left.values()), "a row that is gone goes with its history"
    last = {key: (max(known), known[max(known)]) for key, known in versions.items() if known}
    expected_left = {(key, at): value for key, (at, value) in last.items() if value is not None}
    assert {place: value for place, value in left.items() if place[0] != "end"} == expected_left


@pytest.mark.parametrize(
    ("at", "text"), [(110, "new new"), (109, "old new"), (99, "old new"), (79, "none new"), (300, "new new")]
)
def test_before_the_history_only_what_has_not_changed_is_known(at: int, text: str) -> None:
    """The history of 20 ms ends at event time, which is 100: from 80 on an answer is right, before it there is none."""
    kit = Kit(as_of(20))
    for row, timestamp in (("old", 0), ("new", 110)):
        kit.feed(rows, "a", row, timestamp=timestamp)
    kit.process()
    kit.feed(asks, "b", "", timestamp=100)
    kit.process()
    kit.feed(asks, "a", "", timestamp=at)
    kit.run()
    assert kit.pairs(answers)[-1] == ("a", f": {text}")


def test_an_old_row_that_is_the_newest_of_its_key_is_taken_whatever_its_age() -> None:
    """A table may be older than all records: it is no late record."""
    kit = Kit(as_of(20))
    kit.feed(asks, "b", "", timestamp=10_000)
    kit.feed(rows, "b", "", timestamp=10_000)
    kit.process()
    kit.feed(rows, "a", "price of last year", timestamp=1)
    kit.process()
    kit.feed(asks, "a", "", timestamp=10_001)
    kit.run()
    assert kit.pairs(answers)[-1] == ("a", ": price of last year price of last year")


def test_many_versions_of_one_key_are_deleted_in_the_order_of_time() -> None:
    """A row that changes all the time keeps its history and no more than a quarter of it beyond."""
    kit = Kit(as_of(1_000))
    for at in range(5_000):
        kit.feed(rows, "a", str(at), timestamp=at)
        if at % 100 == 0:
            kit.feed(asks, "z", "", timestamp=at)
    kit.run()
    assert 1_000 <= len(kit.state("prices")) <= 1_351
