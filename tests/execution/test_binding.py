"""Bound stores: what a task reads is what it put, encoded; scans; and how bad use is refused."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Input, Job, Output, Record, Store, Task, Timers, Topic, TumblingWindow, int64, json, utf8
from grete.errors import SerdeError, TaskError
from grete.execution.task_code.binding import after_prefix
from tests.execution.harness import Rig

LINES = Topic("lines", key=utf8, value=utf8)


class Basket(msgspec.Struct):
    items: list[str]


class Stores(Task):
    lines = Input(LINES)
    words = Store("words", key=utf8, value=int64)
    numbers = Store("numbers", key=int64, value=utf8)
    baskets = Store("baskets", key=utf8, value=json(Basket))

    def process(self, record: Record[str, str]) -> None: ...


JOB = Job("j", stages=[Stores])


def test_a_value_is_what_it_was_when_put() -> None:
    """Changing an object after put, or one that get gave, does not change the state (A8)."""
    baskets = Rig(JOB).task.baskets
    basket = Basket(["a"])
    baskets.put("k", basket)
    basket.items.append("b")
    baskets.get("k").items.append("c")
    assert baskets.get("k") == Basket(["a"])


@pytest.mark.parametrize("serde", ["utf8", "int64"])
def test_a_record_without_a_key_is_told_to_test_for_it(serde: str) -> None:
    """A key of None, as a Kafka record may have it, is no key of a store: the error says whose it is, and the way."""
    task = Rig(JOB).task
    store: Any = task.words if serde == "utf8" else task.numbers
    told = (
        f"store {store.name}: serde {serde} cannot encode None: a record's key or value is None where its producer "
        "gave none: test for it in the task, or let the producer give one"
    )
    for use in (store.get, store.delete, lambda key: store.put(key, None)):
        with pytest.raises(SerdeError, match=re.escape(told)):
            use(None)


def test_get_put_delete() -> None:
    """An absent key gives None or the default; deleting it is nothing, and leaves no tombstone for the changelog."""
    rig = Rig(JOB)
    words = rig.task.words
    assert words.get("a") is None
    assert words.get("a", 7) == 7
    words.delete("a")
    rig.overlay.freeze()
    assert list(rig.overlay.frozen_items()) == []
    words.put("a", 1)
    assert words.get("a", 7) == 1
    words.delete("a")
    assert words.get("a") is None


def test_scans_are_in_key_order() -> None:
    """range is half open, prefix is by leading text, all is all; int64 keys sort as numbers."""
    task = Rig(JOB).task
    for word in ("b", "ab", "a", "é", "aé"):
        task.words.put(word, len(word))
    for number in (3, -1, 0, -300, 1 << 40):
        task.numbers.put(number, str(number))
    assert [key for key, _ in task.words.all()] == ["a", "ab", "aé", "b", "é"]
    assert list(task.words.prefix("a")) == [("a", 1), ("ab", 2), ("aé", 2)]
    assert [key for key, _ in task.words.range("ab", "b")] == ["ab", "aé"]
    assert [key for key, _ in task.words.range(end="ab")] == ["a"]
    assert [key for key, _ in task.numbers.all()] == [-300, -1, 0, 3, 1 << 40]
    assert list(task.numbers.range(-1, 3)) == [(-1, "-1"), (0, "0")]


def test_scans_go_backwards() -> None:
    """With reverse, range, prefix and all give the same from the last key on, as of their call."""
    rig = Rig(JOB)
    words = rig.task.words
    words.put_many([("b", 1), ("ab", 2)])
    rig.commit()
    words.put_many([("a", 3), ("aé", 4), ("b", 5)])
    latest = words.all(reverse=True)
    words.put("c", 6)
    assert next(latest) == ("b", 5)
    assert list(words.prefix("a", reverse=True)) == [("aé", 4), ("ab", 2), ("a", 3)]
    assert list(words.range("ab", "b", reverse=True)) == [("aé", 4), ("ab", 2)]
    words.delete("aé")
    assert list(latest) == [("aé", 4), ("ab", 2), ("a", 3)]


def test_many_at_once() -> None:
    """get_many gives values in the order of its keys; put_many sets all or, if a serde refuses one, none."""
    rig = Rig(JOB)
    words = rig.task.words
    words.put_many((word, len(word)) for word in ("a", "bb", "a"))
    rig.commit()
    words.put("ccc", 3)
    words.delete("a")
    assert words.get_many(iter(["ccc", "a", "bb", "d", "bb"])) == [3, None, 2, None, 2]
    for items in ([("d", 4), ("e", "five")], [("d", 4), (5, 5)]):
        with pytest.raises(SerdeError, match="store words: "):
            words.put_many(items)
    with pytest.raises(SerdeError, match="store words: "):
        words.get_many(["a", 5])
    assert words.get("d") is None


def test_a_scan_sees_the_store_as_it_was_when_it_was_asked_for() -> None:
    """Writes after the call, even before the first row is taken, do not show in it."""
    words = Rig(JOB).task.words
    words.put("a", 1)
    words.put("c", 3)
    rows = words.all()
    words.put("b", 2)
    words.delete("c")
    assert list(rows) == [("a", 1), ("c", 3)]


def test_stores_are_apart() -> None:
    """The same key in two stores is two values."""
    task = Rig(JOB).task
    task.words.put("k", 1)
    assert task.baskets.get("k") is None


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda task: task.words.get(5), "store words: serde utf8 cannot encode int 5"),
        (lambda task: task.words.put(None, 1), "store words: serde utf8 cannot encode None: "),
        (lambda task: task.words.put("a", None), "store words: serde int64 cannot encode None: "),
        (lambda task: task.words.put("a", "b"), "store words: serde int64 cannot encode str 'b'"),
        (lambda task: task.words.delete(b"a"), "store words: serde utf8 cannot encode bytes b'a'"),
        (lambda task: task.numbers.range("a"), "store numbers: serde int64 cannot encode str 'a'"),
        (lambda task: task.words.prefix(1), "store words: serde utf8 cannot encode int 1"),
    ],
)
def test_bad_keys_and_values_are_refused_by_name(use: Any, text: str) -> None:
    """The error names store, serde and value, at the call."""
    with pytest.raises(SerdeError) as caught:
        use(Rig(JOB).task)
    assert text in str(caught.value)


def test_values_that_cannot_be_read_are_refused_by_name() -> None:
    """State whose serde was changed says so when it is read, by get and by scans."""
    rig = Rig(JOB)
    rig.overlay.store(JOB.stages[0].store_ids()["words"]).put(b"a", b"short")
    with pytest.raises(SerdeError, match="store words: serde int64 cannot decode bytes b'short'"):
        rig.task.words.get("a")
    with pytest.raises(SerdeError, match="store words: serde int64 cannot decode"):
        list(rig.task.words.all())


UNBOUND: list[Any] = [
    lambda: Store("s", utf8, utf8).get("a"),
    lambda: Store("s", utf8, utf8).put("a", "b"),
    lambda: Store("s", utf8, utf8).delete("a"),
    lambda: Store("s", utf8, utf8).range(),
    lambda: Store("s", utf8, utf8).prefix("a"),
    lambda: Store("s", utf8, utf8).all(),
    lambda: Timers().schedule(1),
    lambda: Timers().cancel(1),
    lambda: TumblingWindow("w", 1, utf8, utf8).update("k", 1, str),
    lambda: Output(LINES).send("a", "b"),
]


@pytest.mark.parametrize("use", UNBOUND)
def test_declarations_refuse_to_be_used(use: Any) -> None:
    """Outside of a running task every method says that it holds no data there."""
    with pytest.raises(TaskError, match=r"declaration here|used outside"):
        use()


def test_running_tasks_leave_the_class_alone() -> None:
    """Two instances of one class have their own state, and the class keeps its declarations."""
    one, two = Rig(JOB).task, Rig(JOB).task
    one.words.put("a", 1)
    assert two.words.get("a") is None
    with pytest.raises(TaskError):
        Stores.words.get("a")


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_after_prefix_bounds_exactly_the_prefixed(prefix: bytes, key: bytes) -> None:
    """A key is below the bound and not below the prefix if and only if it starts with it."""
    end = after_prefix(prefix)
    assert (key >= prefix and (end is None or key < end)) == key.startswith(prefix)
