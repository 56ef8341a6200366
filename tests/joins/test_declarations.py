"""Joins that are declared wrongly, or changed, or asked for too much: errors with the values and a way."""

from typing import Any

import pytest

from grete import (
    DeadLetter,
    Input,
    IntervalJoin,
    Job,
    Record,
    Store,
    TableJoin,
    Task,
    Topic,
    VersionedStore,
    int64,
    utf8,
)
from grete.api.jobs.definition import changes_of_job, decode_definition, define, encode_definition, take_over
from grete.errors import ConfigError, GraphError, TaskError
from grete.testing import Kit
from tests.joins.jobs import TEXTS, Joined, interval, job_of, joined, lefts, pairs_topic, rights, tables
from tests.joins.test_versioned import as_of


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: interval(-5, 4), r"before_ms = -5, after_ms = 4, .*: need before_ms \+ after_ms >= 0"),
        (lambda: interval(0, 0, grace_ms=-1), "grace_ms = -1, .* grace_ms >= 0"),
        (lambda: interval(0, 0, matches_max=0), "matches_max = 0: need .* matches_max >= 1"),
        (lambda: interval(0, 0, how="right"), "how = 'right': need 'inner', 'left' or 'outer'; for a right join swap"),
        (lambda: tables("full"), "how = 'full': need 'inner', 'left' or 'outer'"),
        (lambda: interval(0, (1 << 63) - 1), "join .*: after_ms = 9223372036854775807: need an int of at most"),
        (lambda: VersionedStore("s", utf8, utf8, retention_ms=(1 << 63) - 1), "store 's': retention_ms = 9223372036"),
        (lambda: VersionedStore("s", utf8, utf8, retention_ms=-1), "retention_ms = -1: need 0 or more"),
    ],
)
def test_declarations_that_make_no_join_are_refused(declare: Any, text: str) -> None:
    """With the values, where they are declared."""
    with pytest.raises(ConfigError, match=text):
        declare()


def test_a_task_with_a_join_has_on_join() -> None:
    """The error names the kind that the task declares."""

    class Silent(Task):
        source = Input(lefts)
        join = tables()

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    with pytest.raises(GraphError, match=r"declares a TableJoin and has no on_join\(self, pair\)"):
        Job("silent", stages=[Silent])


@pytest.mark.parametrize("name", ["texts", "texts-left", "Texts-Right"])
def test_a_name_of_a_join_is_no_other_stores(name: str) -> None:
    """Its two stores have names of their own, and its timers have its own."""

    class Two(Task):
        source = Input(lefts)
        join = interval(0, 1)
        other = Store(name, utf8, utf8)

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

        def on_join(self, pair: Any) -> None:
            """Do nothing."""

    with pytest.raises(GraphError, match=r"stage 'two': store .* clashes with"):
        Job("two", stages=[Two])


@pytest.mark.parametrize(
    "use",
    [
        lambda: interval(0, 1).put_left("a", 0, ""),
        lambda: tables().put_right("a", 0, None),
        lambda: VersionedStore("s", utf8, utf8, retention_ms=1).put("a", 0, ""),
        lambda: VersionedStore("s", utf8, utf8, retention_ms=1).get("a"),
    ],
)
def test_a_declaration_holds_nothing(use: Any) -> None:
    """It does so on a running task only."""
    with pytest.raises(TaskError, match="is a declaration here: use it on a task that Grete runs"):
        use()


CHANGED = [
    (interval(0, 9), interval(0, 8), "join match/texts: after_ms was 9 and is 8, so what it keeps for matches to come"),
    (interval(0, 9), interval(1, 9), "join match/texts: before_ms was 0 and is 1, so what it keeps"),
    (interval(0, 9), interval(0, 9, grace_ms=3), "join match/texts: grace_ms was 0 and is 3"),
    (
        interval(0, 9),
        interval(0, 9, how="left"),
        r"was inner interval join \(before_ms 0, after_ms 9, grace_ms 0\) and is left interval join \(before_ms 0, ",
    ),
    (interval(0, 9), tables(), r"was inner interval join \(before_ms 0, after_ms 9, grace_ms 0\) and is inner table j"),
    (tables(), tables("outer"), "was inner table join and is outer table join, so what it keeps for matches to come"),
    (
        interval(0, 9),
        IntervalJoin("texts", before_ms=0, after_ms=9, key=utf8, left=utf8, right=int64),
        "join match/texts: its right: was utf8 and is int64",
    ),
    (tables(), TableJoin("texts", int64, utf8, utf8), "join match/texts: its key was utf8 and is int64"),
    (
        tables(),
        TableJoin("others", **TEXTS),
        r"join match/texts \(key utf8, left utf8, right utf8\) is gone or has another name.*declare it again as it was",
    ),
]


@pytest.mark.parametrize(("before", "now", "text"), CHANGED)
def test_a_changed_join_is_refused(before: Any, now: Any, text: str) -> None:
    """The refusal names the old and the new declaration, the open rows and the way, from the stored text."""
    definition = decode_definition(encode_definition(define(job_of(before), {})))
    assert changes_of_job(definition, job_of(before)) == []
    changes = changes_of_job(definition, job_of(now))
    assert changes
    assert "; ".join(f"{change.what}: {change.way}" for change in changes)
    with pytest.raises(ConfigError, match=text):
        raise ConfigError("; ".join(f"{change.what}: {change.way}" for change in changes))


def test_a_join_keeps_its_stores_ids_when_others_are_declared_before_it() -> None:
    """Ids come from the definition, each store's its own."""
    definition = define(job_of(interval(0, 1)), {})

    class Match(Task):
        name = "match"
        a = Input(lefts)
        more = Store("more", utf8, utf8)
        prices = VersionedStore("prices", utf8, utf8, retention_ms=5)
        join = interval(0, 1)

        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

        def on_join(self, pair: Any) -> None:
            """Do nothing."""

    job = Job("joins", stages=[Match])
    take_over(definition, job)
    ids = job.stages[0].store_ids()
    assert [ids[name] for name in ("texts-left", "texts-right", "more", "prices")] == [10, 11, 12, 13]
    again = define(job, {})
    assert changes_of_job(again, job_of(interval(0, 1)))[0].what.startswith("store match/more")


def test_what_is_stored_keeps_its_bytes() -> None:
    """Times are in 8 bytes that sort as they do; what is kept is read by later releases."""
    join, both, known = interval(0, 1), tables(), VersionedStore("known", utf8, utf8, retention_ms=1)
    key = b"\0\0\0\1a" + b"\x80\0\0\0\0\0\0\5"
    assert (
        join.lefts.key.encode(("a", 5))
        == join.rights.key.encode(("a", 5))
        == known.versions.key.encode(("a", 5))
        == key
    )
    assert join.lefts.key.encode(("a", -1)) == b"\0\0\0\1a" + b"\x7f" + b"\xff" * 7
    assert join.lefts.value.encode((True, ["b", ""])) == b"\1" + b"\0\0\0\1b" + b"\0\0\0\0"
    assert both.rows.value.encode(((5, "b"), None)) == b"\1\0" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\1b"
    assert both.rows.value.encode((None, (-1, "b"))) == b"\0\1" + b"\xff" * 8 + b"\0\0\0\1b"
    assert [known.versions.value.encode(each) for each in ("b", "", None)] == [b"=b", b"=", b""]


def test_the_history_of_a_versioned_store_may_change() -> None:
    """Kept versions are right for any history, and dropped ones are unknown, so the history may change."""
    assert changes_of_job(define(as_of(5), {}), as_of(9)) == []
    changes = changes_of_job(define(as_of(5), {}), as_of(9, value=int64))
    assert [change.what for change in changes] == ["versioned store price/prices: its value: was utf8 and is int64"]


def test_too_many_matches_are_an_error_of_the_record() -> None:
    """With the key, its time and the bound."""
    for topics, bound in (((lefts, lefts, rights), 1), ((lefts, lefts), 1)):
        kit = Kit(job_of(interval(5, 5, matches_max=bound)))
        for number, topic in enumerate(topics):
            kit.feed(topic, "a", str(number), timestamp=0 if len(topics) == 2 else number)
        with pytest.raises(TaskError, match=r"the record of key 'a' at . has more than matches_max = 1 matches"):
            kit.run()


def test_a_time_is_as_late_as_times_can_be() -> None:
    """The bounds of an interval do not run over those of times."""
    kit = Kit(job_of(interval(5, 5)))
    for topic in (lefts, rights):
        for at in (-(1 << 62), 1 << 62):
            kit.feed(topic, "a", str(at), timestamp=at)
    kit.run()
    assert [each.timestamp for each in joined(kit)] == [-(1 << 62), 1 << 62]


def test_what_is_sent_after_the_pairs_has_the_records_own_time() -> None:
    """A pair has a time of its own, and only what ``on_join`` sends carries it."""

    class Match(Task):
        name = "match"
        a = Input(lefts)
        b = Input(rights)
        join = interval(100, 100)
        out = job_of(tables()).stages[0].outputs["out"]

        def process(self, record: Record[str, str]) -> None:
            put = self.join.put_left if record.topic == lefts.name else self.join.put_right
            put(record.key, record.timestamp, record.value)
            self.out.send("after", {})

        def on_join(self, pair: Any) -> None:
            self.out.send("pair", {})

    kit = Kit(Job("times", stages=[Match]))
    kit.feed(lefts, "a", "", timestamp=50)
    kit.feed(rights, "a", "", timestamp=10)
    kit.run()
    assert sorted((r.key or "", r.timestamp) for r in kit.outputs(pairs_topic)) == [
        ("after", 10),
        ("after", 50),
        ("pair", 50),
    ]


def test_a_record_that_fails_leaves_nothing_in_a_join() -> None:
    """With dead letters, what it did is undone: it matches nothing later."""

    letters = Topic("letters", utf8, utf8)

    class Match(Task):
        name = "match"
        a = Input(lefts, errors=DeadLetter(letters))
        b = Input(rights)
        join = interval(100, 100)
        out = job_of(tables()).stages[0].outputs["out"]

        def process(self, record: Record[str, str]) -> None:
            put = self.join.put_left if record.topic == lefts.name else self.join.put_right
            put(record.key, record.timestamp, record.value)
            if record.value == "bad":
                raise ValueError(record.value)

        def on_join(self, pair: Any) -> None:
            self.out.send(pair.key, {"left": pair.left, "right": pair.right})

    kit = Kit(Job("undone", stages=[Match]))
    for text in ("bad", "good"):
        kit.feed(lefts, "a", text, timestamp=1)
    kit.feed(rights, "a", "R", timestamp=2)
    kit.run(crashes=2, seed=1)
    assert joined(kit) == [Joined("a", "good", "R", 2)]
    assert kit.pairs(letters) == [("a", "bad")]
