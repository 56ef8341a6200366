"""Results of a join for which ``on_join`` fails."""

from typing import Any

import pytest

from grete import (
    Client,
    DeadLetter,
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
    Record,
    Task,
    Topic,
    TumblingWindow,
    Window,
    int64,
    json,
    utf8,
)
from grete.api.tasks.mode import Mode
from grete.errors import ConfigError, SerdeError, TaskError
from grete.testing import Kit
from tests.joins.jobs import Joined, interval, joined, lefts, pairs_topic, rights

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


def test_letters_have_the_key_as_a_topic_has_it() -> None:
    """A store keeps int64 in another form, by which it sorts; with the topic's serde that would be a wrong key."""
    numbers, refused = Topic("numbers", key=int64, value=utf8), Topic("refused", key=int64, value=utf8)

    class Refuse(Task):
        source = Input(numbers)
        other = Input(lefts)
        join = IntervalJoin(
            "j",
            before_ms=0,
            after_ms=1,
            key=int64,
            left=utf8,
            right=utf8,
            how="left",
            errors=DeadLetter(refused),
        )
        tens = TumblingWindow("tens", 10, key=int64, value=utf8, errors=DeadLetter(refused))

        def process(self, record: Record[int, str]) -> None:
            if record.topic == "numbers":
                self.join.put_left(record.key, record.timestamp, record.value)
                self.tens.update(record.key, record.timestamp, lambda _: record.value)

        def on_join(self, pair: Pair[int, str, str]) -> None:
            raise ValueError(pair.key)

        def on_window(self, window: Window[int, str]) -> None:
            raise LookupError(window.key)

    kit = Kit(Job("refuse", stages=[Refuse]))
    kit.feed(numbers, -7, "seven", timestamp=0)
    kit.drain()
    found = [(record.key, record.value, dict(record.headers)["grete.key_serde"]) for record in kit.outputs(refused)]
    assert found == [(-7, "seven", b"int64"), (-7, "seven", b"int64")]


def test_a_letter_that_another_serde_cannot_read_says_with_which() -> None:
    """The kit and a client say where it is, too."""
    wrong = Topic(letters.name, key=utf8, value=int64)
    with pytest.raises(
        SerdeError, match=r"topic letters, partition 0, offset 0: serde int64 .*: Topic\('letters', bytes_serde"
    ):
        run(failing(DeadLetter(letters))).outputs(wrong)


def test_a_record_without_a_value_is_in_no_join() -> None:
    """With JSON it would be stored as null, and its pairs would say that there is no match."""
    plain = Topic("plain", key=utf8, value=json)

    class Match(Task):
        source = Input(plain, errors=DeadLetter(letters))
        join = IntervalJoin("j", before_ms=0, after_ms=1, key=utf8, left=json, right=json, how="outer")

        def process(self, record: Record[str, Any]) -> None:
            self.join.put_left(record.key, record.timestamp, record.value)

        def on_join(self, pair: Pair[str, Any, Any]) -> None: ...

    kit = Kit(Job("valueless", stages=[Match]))
    kit.feed(plain, "a", None, timestamp=3)
    kit.run()
    (letter,) = kit.outputs(letters)
    told = b"TaskError: join 'j': the left record of key 'a' at 3 has no value: it can be in no pair: test for None"
    assert told in (dict(letter.headers)["grete.error"] or b"")


def test_to_read_a_join_names_its_stores() -> None:
    """A name or a join is no store: the kit and a client say what is to be given."""
    job = failing("drop")
    join: Any = job.stages[0].stateful["join"]
    told = r"join 'texts' has stores of its own: give one .* \.lefts or \.rights"
    with pytest.raises(ConfigError, match=told):
        run(job).state(join)
    with Client(job) as client:
        with pytest.raises(ConfigError, match=told):
            client.get(join, "a")
        name: Any = "texts-left"
        with pytest.raises(ConfigError, match="'texts-left' is no store: give its declaration, an attribute"):
            client.all(name)
