"""What becomes of a result of a join if ``on_join`` fails, and which jobs are not rescaled."""

from typing import Any

import pytest

from framework.api.mode import Mode
from framework.errors import ConfigError, TaskError
from framework.logs.memory import MemoryLog, MemoryLogData
from framework.state.rescale import check_inputs
from framework.testing import Kit
from grete import DeadLetter, Input, Job, Output, Pair, Record, Task, Topic, utf8
from tests.joins.jobs import Joined, interval, job_of, joined, lefts, pairs_topic, rights, tables
from tests.joins.test_versioned import as_of

letters = Topic("letters", utf8, utf8)


def failing(errors: Any, mode: Mode = "aligned", of_records: Any = "fail") -> Job:
    """Return a job that fails on results with the text "bad" on a side; what it sent before is undone."""

    class Match(Task):
        name = "match"
        a = Input(lefts, errors=of_records)
        b = Input(rights, errors=of_records)
        join = interval(0, 10, how="outer", errors=errors)
        out = Output(pairs_topic)

        def process(self, record: Record[str, str]) -> None:
            put = self.join.put_left if record.topic == lefts.name else self.join.put_right
            put(record.key, record.timestamp, record.value)

        def on_join(self, pair: Pair[str, str, str]) -> None:
            self.out.send(pair.key, {"left": pair.left, "right": pair.right})
            if "bad" in (pair.left, pair.right):
                raise ValueError("bad")

    return Job("failing", stages=[Match], mode=mode)


def run(job: Job) -> Kit:
    """Run it over two records that have no match and fail, and one that has none and does not."""
    kit = Kit(job)
    kit.feed(lefts, "a", "bad", timestamp=0)
    kit.feed(rights, "b", "bad", timestamp=1)
    kit.feed(lefts, "c", "good", timestamp=2)
    for topic in (lefts, rights):
        kit.feed(topic, "end", "", timestamp=100)
    kit.run(crashes=2, seed=2)
    return kit


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_a_record_without_a_match_that_fails_has_a_letter(mode: Mode) -> None:
    """With the bytes of its key and value, its time, and which side of which join it was; others are told."""
    kit = run(failing(DeadLetter(letters), mode))
    assert sorted(each.key for each in joined(kit)) == ["c", "end"]
    found = [(r.key, r.value, r.timestamp, dict(r.headers)) for r in kit.outputs(letters)]
    assert [each[:3] for each in found] == [("b", "bad", 1), ("a", "bad", 0)]
    assert [(h["grete.join"], h["grete.side"], h["grete.error"]) for *_, h in found] == [
        (b"texts", b"right", b"ValueError: bad"),
        (b"texts", b"left", b"ValueError: bad"),
    ]


def test_a_record_without_a_match_that_fails_is_dropped_or_stops_the_task() -> None:
    """The error says which it was, and the ways."""
    assert sorted(each.key for each in joined(run(failing("drop")))) == ["c", "end"]
    with pytest.raises(
        TaskError, match=r"join texts at 2: ValueError: bad.*; to send such records .*: IntervalJoin\(…, errors="
    ):
        run(failing("fail"))


def test_a_pair_that_fails_is_part_of_the_record_that_completes_it() -> None:
    """That record has the letter; what its task sent for it is undone."""
    kit = Kit(failing("drop", of_records=DeadLetter(letters)))
    for key, text, at in (("a", "bad", 0), ("b", "good", 10)):
        kit.feed(lefts, key, text, timestamp=at)
        kit.feed(rights, key, f"R{text}", timestamp=at + 1)
    kit.run()
    assert [(r.value, dict(r.headers)["grete.topic"]) for r in kit.outputs(letters)] == [("Rbad", b"rights")]
    assert joined(kit) == [Joined("b", "good", "Rgood", 11)]


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (job_of(interval(0, 1)), "stage match has joins, closed by a partition's event time: it cannot be rescaled"),
        (job_of(tables()), "stage match has joins: it cannot be rescaled"),
        (as_of(1), "stage price has versioned stores, closed by a partition's event time: it cannot be rescaled"),
    ],
)
def test_stages_with_joins_are_not_rescaled(job: Job, text: str) -> None:
    """Their state is kept by partition; the error says so, and another way."""
    log: Any = MemoryLog(MemoryLogData(lambda: 0))
    with pytest.raises(ConfigError, match=text):
        check_inputs(log, job, [])
