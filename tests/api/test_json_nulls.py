"""Null in JSON: numbers that JSON does not have are refused before it, and a text null is no tombstone and no key."""

import math
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import DeadLetter, Input, Job, Output, Record, Serde, Store, Task, Topic, avro, bytes_serde, json, utf8
from grete.errors import ConfigError, GraphError, SerdeError, TaskError
from grete.testing import Kit
from tests.execution.harness import Rig

NUMBERS = st.floats() | st.integers(-(1 << 70), 1 << 70)
VALUES = st.recursive(
    st.none() | st.text(max_size=3) | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class Reading(pydantic.BaseModel):
    value: float | None = None


def is_finite(value: Any) -> bool:
    """Tell whether JSON has all numbers of a value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(is_finite, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


@given(VALUES)
def test_a_value_comes_back_or_is_refused(value: Any) -> None:
    """NaN and infinity are refused wherever they are; None, and numbers whose bytes look alike, are not."""
    if is_finite(value):
        assert json.decode(json.encode(value)) == value
    else:
        with pytest.raises(SerdeError, match="which JSON does not have"):
            json.encode(value)


@pytest.mark.parametrize(
    ("serde", "value", "place"),
    [
        (json(float), math.nan, "$ is nan"),
        (json, {"a": [1, {"b": -math.inf}]}, "$.a[1].b is -inf"),
        (json(dict[int, float]), {2: 0.5, 1: math.inf}, "$.1 is inf"),
        (json(Reading), Reading(value=math.nan), "$.value is nan"),
        (json(set[float]), {math.nan}, "$[0] is nan"),
    ],
)
def test_the_place_of_such_a_number_is_named(serde: Serde[Any], value: object, place: str) -> None:
    """In dicts, lists, sets, models, and dicts that are not sorted."""
    with pytest.raises(SerdeError, match="cannot encode") as refused:
        serde.encode(value)
    assert place in str(refused.value)


def test_what_is_put_and_sent_is_refused_with_its_key() -> None:
    """In the state it would make the key unreadable for ever."""

    class Keep(Task):
        numbers = Input(Topic("numbers", key=utf8, value=json(float)))
        kept = Store("kept", key=utf8, value=json(float))
        out = Output(Topic("out", key=utf8, value=json(float)))

        def process(self, record: Record[str, float]) -> None: ...

    rig = Rig(Job("keep", stages=[Keep]))
    kept, said = rig.task.kept, r"store kept: .* float nan of key str 'ann': .*JSON does not have"
    with pytest.raises(SerdeError, match=said):
        kept.put("ann", math.nan)
    with pytest.raises(SerdeError, match=said):
        kept.put_many([("ann", math.nan)])
    with pytest.raises(SerdeError, match=r"output to out: .* float inf of key str 'ann'"):
        rig.task.out.send("ann", math.inf)
    assert kept.get("ann") is None


# --- A text null ------------------------------------------------------------------------------------------------------

LETTERS = Topic("letters", key=bytes_serde, value=bytes_serde)


def passing(topic: Topic[Any, Any], how: str = "record", **arguments: Any) -> Job:
    """Return a job that sends on what it reads."""
    target = Topic("out", key=topic.key, value=topic.value, null=topic.null)

    class Each(Task):
        source = Input(topic, **arguments)
        out = Output(target)

        def process(self, record: Record[Any, Any]) -> None:
            self.out.send(record.key, record.value)

    class Batches(Task):
        source = Input(topic, **arguments)
        out = Output(target)

        def process_batch(self, records: list[Record[Any, Any]]) -> None:
            for record in records:
                self.out.send(record.key, record.value)

    class Waiting(Task):
        source = Input(topic, **arguments)
        out = Output(target)

        async def process(self, record: Record[Any, Any]) -> None:
            self.out.send(record.key, record.value)

    return Job("passing", stages=[{"record": Each, "batch": Batches, "async": Waiting}[how]])


def fed(job: Job, *rows: tuple[bytes | None, bytes | None]) -> Kit:
    """Run a job on rows as they are in the log."""
    kit = Kit(job)
    for key, value in rows:
        kit.feed(Topic("in", key=bytes_serde, value=bytes_serde), key, value, timestamp=1)
    kit.run()
    return kit


@pytest.mark.parametrize("how", ["record", "batch", "async"])
@pytest.mark.parametrize(
    ("serde", "null", "other"),
    [
        (json, b" null", b'"k"'),
        (json(str | None), b"null", b'"k"'),
        (avro('["null", "string"]'), b"\x00", b"\x02\x02k"),
    ],
)
def test_bytes_that_mean_null_are_no_record_of_an_input(how: str, serde: Any, null: bytes, other: bytes) -> None:
    """Sent on they would delete a row, or be without a key; null itself is one still, and beside it nothing differs."""
    job = passing(Topic("in", key=serde, value=serde), how, errors=DeadLetter(LETTERS))
    kit = fed(job, (other, other), (other, null), (null, other), (other, None), (None, other))
    raw = kit.pairs(Topic("out", key=bytes_serde, value=bytes_serde))
    assert raw == [(other, other), (other, None), (None, other)]
    assert kit.pairs(LETTERS) == [(other, null), (null, other)]
    errors = [(dict(letter.headers)["grete.error"] or b"").decode() for letter in kit.outputs(LETTERS)]
    assert [end for text, end in zip(errors, ("value", "key"), strict=True) if f"reads the {end} {null!r}" in text] == [
        "value",
        "key",
    ]


def test_such_a_record_stops_a_task_that_has_no_dead_letters() -> None:
    """The error has the place, and the way to take such records; so where a function of the value tells the time."""
    arguments: list[dict[str, Any]] = [{}, {"time": lambda value: value["at"]}]
    for more in arguments:
        with pytest.raises(TaskError, match=r"offset 0.*reads the value b'null' as null.*null=\"tombstone\"\)"):
            fed(passing(Topic("in", key=json, value=json), **more), (b'"k"', b"null"))


def test_a_topic_may_say_that_the_text_is_a_tombstone() -> None:
    """Then value and key count as null, as the log's own do."""
    kit = fed(passing(Topic("in", key=json, value=json, null="tombstone")), (b'"k"', b"null"), (b"null", b"1"))
    assert kit.pairs(Topic("out", key=bytes_serde, value=bytes_serde)) == [(b'"k"', None), (None, b"1")]


def test_a_topic_says_it_once_and_in_one_of_two_words() -> None:
    """Two declarations of one name that differ are refused, and so is a third word."""
    with pytest.raises(ConfigError, match="null='drop': need 'refuse' or 'tombstone'"):
        Topic("in", key=json, value=json, null="drop")  # type: ignore[arg-type]  # the mistake

    def reading(name_: str, null: Literal["refuse", "tombstone"]) -> type[Task]:
        class Reads(Task):
            name = name_
            source = Input(Topic("in", key=json, value=json, null=null))

            def process(self, record: Record[Any, Any]) -> None: ...

        return Reads

    with pytest.raises(GraphError, match="has null='refuse' in one declaration and 'tombstone' in another"):
        Job("two", stages=[reading("a", "refuse"), reading("b", "tombstone")])
