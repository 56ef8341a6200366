"""Fields of pydantic's models that a state may lose: by a name, by a bound, or because no one declares them."""

from typing import Any

import pydantic
import pytest

from grete import Call, Input, Job, Output, Record, Serde, Store, TableJoin, Task, Topic, TumblingWindow, json, utf8
from grete.api.serdes.shapes import describe_serde, value_changes
from grete.errors import ConfigError
from tests.api.test_formats import changes, model


def test_a_bound_that_comes_and_fields_that_are_kept_no_more_are_told() -> None:
    """A stored value may be beyond it; a bound that goes keeps all. What 0.2.0 has pinned says nothing of either."""
    plain_, bounded = model(n=(int, ...)), model(n=(int, pydantic.Field(ge=0)))
    assert changes(plain_, bounded) == ["field 'n' of Order has a bound that it had not: Ge(ge=0)"]
    assert changes(bounded, plain_) == changes(bounded, bounded) == []
    more = json(pydantic.create_model("Order", __config__=pydantic.ConfigDict(extra="allow"), n=(int, ...)))
    assert "Order kept fields that it does not name" in changes(more, plain_)[0]
    assert changes(plain_, more) == changes(more, more) == []
    pinned = describe_serde(plain_)
    (struct,) = pinned["schema"]["structs"]
    del struct["extra"], struct["fields"][0]["bounds"]
    assert value_changes(pinned, describe_serde(bounded)) == []


def test_a_model_that_does_not_read_what_it_writes_is_for_topics_at_the_ends() -> None:
    """A store, a call and a stream between stages would lose a field that has a default."""
    kind: Any = pydantic.create_model("Order", n=(int, pydantic.Field(0, validation_alias="N")))
    read_as = json(kind)
    assert read_as.decode(b'{"N": 5}').n == 5
    assert read_as.decode(read_as.encode(read_as.decode(b'{"N": 5}'))).n == 0
    lost = "field 'n' of Order is written as 'n' and read as N, so it would be lost: give it one alias"
    with pytest.raises(ConfigError, match=f"store s: .*{lost}"):
        Store("s", key=utf8, value=read_as)
    with pytest.raises(ConfigError, match=f"store w: .*{lost}"):
        TumblingWindow("w", 10, key=utf8, value=json(list[kind]))
    with pytest.raises(ConfigError, match=f"store j: .*{lost}"):
        TableJoin("j", key=utf8, left=utf8, right=read_as)
    with pytest.raises(ConfigError, match=f"the result of len: .*{lost}"):
        Call(len, result=read_as)
    written_as = model(n=(int, pydantic.Field(0, serialization_alias="N")))
    with pytest.raises(ConfigError, match="is written as 'N' and read as n"):
        Store("s", key=utf8, value=written_as)
    between = Topic("between", key=utf8, value=written_as)

    class Write(Task):
        numbers = Input(Topic("numbers", key=utf8, value=read_as))
        out = Output(between)

        def process(self, record: Record[str, Any]) -> None: ...

    class Read(Task):
        source = Input(between)

        def process(self, record: Record[str, Any]) -> None: ...

    Job("ends", stages=[Write])
    with pytest.raises(ConfigError, match=r"topic between between stages: .*is written as 'N' and read as n"):
        Job("between", stages=[Write, Read])


def test_a_model_that_reads_a_written_name_by_another_way_is_kept() -> None:
    """By the field's name, or by one of several aliases."""
    by_name = pydantic.ConfigDict(populate_by_name=True)
    for config, number in (
        (by_name, pydantic.Field(0, validation_alias="N")),
        (None, pydantic.Field(0, validation_alias=pydantic.AliasChoices("N", pydantic.AliasPath("n")))),
        (None, pydantic.Field(0, alias="N")),
    ):
        kind: Serde[Any] = json(pydantic.create_model("Order", __config__=config, n=(int, number)))
        Store("s", key=utf8, value=kind)
        assert kind.decode(kind.encode(kind.decode(b'{"N": 5}'))).n == 5
