"""Composite keys: what they write, in what order it sorts, what places a record, and how they refuse."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Input, Job, Key, Record, Serde, Store, Task, Timer, Timers, Topic, bytes_serde, int64, json, utf8
from grete.api.jobs.definition import changes_of_job, define
from grete.api.serdes.key import of_plain, partition_by, prefix_of
from grete.api.serdes.serde import first_serde, placing_in_store, placing_of
from grete.api.serdes.shapes import describe_serde, key_changes
from grete.errors import ConfigError, SerdeError
from grete.protocol.partitioner import partition_of

ROW = Key(bytes_serde, int64, bytes_serde)
ROWS = st.tuples(st.binary(), st.integers(-(1 << 63), (1 << 63) - 1), st.binary())
SHOP: Serde[tuple[str, str]] = Key(utf8, utf8)


@given(ROWS, ROWS)
def test_keys_come_back_and_sort_as_their_parts_do(
    one: tuple[bytes, int, bytes], other: tuple[bytes, int, bytes]
) -> None:
    """The parts may have any bytes, NUL among them; equal bytes are equal keys."""
    raw, raw_other = ROW.encode(one), ROW.encode(other)
    assert ROW.decode(raw) == one
    assert (raw < raw_other, raw == raw_other) == (one < other, one == other)


@given(st.binary(), st.binary(), st.integers(1, 40))
def test_the_first_part_places_a_record(first: bytes, last: bytes, partitions: int) -> None:
    """A key of several parts is where its first part alone would be."""
    place = partition_by(Key(bytes_serde, bytes_serde))
    assert place(Key(bytes_serde, bytes_serde).encode((first, last)), partitions) == partition_of(first, partitions)


def test_a_part_of_int64_places_as_topics_have_it() -> None:
    """Within a key it has the form that sorts; a record whose whole key is that number is in the same partition."""
    placing, own = placing_of(Key(int64, utf8)), placing_in_store(Store("totals", key=int64, value=int64).key)
    assert placing is not None
    assert own is not None
    assert (
        placing(Key(int64, utf8).encode((-5, "tea"))) == int64.encode(-5) == own(Store("n", int64, utf8).key.encode(-5))
    )


def test_a_key_within_a_key_is_placed_by_the_first_part_of_all() -> None:
    """The first part of a first part counts, in its own bytes."""
    outer = Key(SHOP, int64)
    placing = placing_of(outer)
    assert placing is not None
    assert placing(outer.encode((("a\0b", "tea"), 3))) == b"a\0b"
    assert outer.decode(outer.encode((("a\0b", "tea"), 3))) == (("a\0b", "tea"), 3)


@pytest.mark.parametrize("bad", ["ab", ("ann",), ("ann", "tea", "x"), ("ann", 5), None, 7])
def test_what_is_no_key_of_these_parts_is_refused(bad: Any) -> None:
    """A text of two letters is no pair."""
    with pytest.raises(SerdeError, match=r"serde Key\(utf8, utf8\) cannot encode"):
        SHOP.encode(bad)


@pytest.mark.parametrize("data", [b"", b"ann", b"an\0n\0\1tea", b"ann\0\1\xff"])
def test_bytes_that_are_no_such_key_are_refused(data: bytes) -> None:
    """There is one way to write a key: other bytes that would read as it are refused."""
    with pytest.raises(SerdeError, match=r"serde Key\(utf8, utf8\) cannot decode"):
        SHOP.decode(data)


def test_a_prefix_has_the_first_parts() -> None:
    """All parts: the last one is the beginning of a part, as of a plain key."""
    begin = prefix_of(SHOP)
    assert SHOP.encode(("ann", "tea")).startswith(begin(("ann",)))
    assert not SHOP.encode(("anna", "tea")).startswith(begin(("ann",)))
    assert SHOP.encode(("ann", "tea")).startswith(begin(("ann", "t")))
    assert begin(()) == b""
    with pytest.raises(TypeError):
        begin(("ann", "tea", "x"))


def test_json_has_a_key_as_a_list() -> None:
    """Commands take and show it so, and bytes as hex digits."""
    assert of_plain(Key(utf8, bytes_serde, int64), ["ann", "00ff", 3]) == ("ann", b"\0\xff", 3)
    assert of_plain(Key(json(Decimal), utf8), ["1.5", "x"]) == (Decimal("1.5"), "x")
    with pytest.raises(TypeError):
        of_plain(SHOP, "ann")


def test_declarations_that_are_none_are_refused() -> None:
    """A key of one part is that part."""
    one: Any = Key
    with pytest.raises(ConfigError, match=r"Key\(utf8\): need two serdes or more"):
        one(utf8)
    with pytest.raises(ConfigError, match="is no serde"):
        one(utf8, str)


@pytest.mark.parametrize("names", [("shop",), ("shop", "shop"), ("shop", "an article"), ("shop", 2), ("a", "b", "b")])
def test_names_that_are_none_are_refused(names: Any) -> None:
    """As many as there are parts, each another one, and such as a column may have."""
    with pytest.raises(ConfigError, match=r"Key\(utf8, utf8\): names = .*: need 2 names such as 'shop'"):
        Key(utf8, utf8, names=names)


def test_names_are_no_part_of_a_serde() -> None:
    """They may change: bytes and definition do not depend on them."""
    named = Key(utf8, utf8, names=("shop", "article"))
    assert named == SHOP
    assert describe_serde(named) == describe_serde(SHOP)
    assert Key(json, utf8, names=("a", "b")).first is not None


def test_timers_keep_the_serde_of_their_keys() -> None:
    """Those that wait could not be read by another."""

    def job(declared: Timers[Any]) -> Job:
        class Wait(Task):
            lines = Input(Topic("lines", key=utf8, value=utf8))
            timers = declared

            def process(self, record: Record[str, str]) -> None: ...

            def on_timer(self, timer: Timer[Any]) -> None: ...

        return Job("waiting", stages=[Wait])

    plain, pairs = job(Timers()), job(Timers(key=SHOP))
    assert "timer_keys" not in define(plain, {})["stages"][0], "a job of before would have another definition"
    for before, now in ((plain, pairs), (pairs, plain), (pairs, job(Timers(key=Key(utf8, int64))))):
        (change,) = changes_of_job(define(before, {}), now)
        assert change.what.startswith("stage 'wait', the timers of the event clock: their key was ")
    assert not changes_of_job(define(pairs, {}), job(Timers(key=SHOP)))


def test_equal_keys_have_equal_bytes_and_version_1_writes_as_ever() -> None:
    """A part of JSON is written as a key of its own is, in each version of the serdes."""
    amounts = Key(json(Decimal), utf8)
    assert amounts.encode((Decimal("1.0"), "x")) == amounts.encode((Decimal("1.00"), "x"))
    first = first_serde(amounts)
    assert first.encode((Decimal("1.0"), "x")) != first.encode((Decimal("1.00"), "x"))
    placing, alone = placing_of(first), first_serde(json(Decimal))
    assert placing is not None
    assert placing(first.encode((Decimal("1.00"), "x"))) == alone.encode(Decimal("1.00"))


def test_a_definition_tells_the_parts_apart() -> None:
    """Another part, or another field in one, is another key; the name of a class is not."""
    described = [describe_serde(each) for each in (SHOP, Key(utf8, int64), Key(utf8, json(list[int])), Key(utf8, json))]
    assert described[0] == {"name": "Key(utf8, utf8)"}
    assert all(key_changes(one, other) for one in described for other in described if one is not other)
