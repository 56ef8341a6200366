"""Descriptions of serdes: one text in every process, and what of a change makes written values unreadable."""

import enum
import json as plain
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from grete import avro, bytes_serde, int64, json, utf8
from grete.api.serdes.serde import Codec, key_serde
from grete.api.serdes.shapes import describe_serde, key_changes, shown, value_changes


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Part(NamedTuple):
    x: int
    y: int = 0


class Extra(TypedDict, total=False):
    note: str


@dataclass
class Address:
    street: str
    tags: set[str] = field(default_factory=lambda: {"a", "b", "c"})


class Node(msgspec.Struct, omit_defaults=True):
    name: str
    colour: Colour | None = None
    below: "list[Node]" = []
    words: frozenset[str] = frozenset({"x", "y", "z"})
    kind: Literal["b", "a"] | int = "a"
    address: Address | None = None
    part: Part = Part(1)
    extra: dict[str, Extra] = {}


NODE = """
from tests.api.test_shapes import *
print(plain.dumps([describe_serde(s) for s in (json(Node), json(dict[str, set[int] | None]), avro({"type": "map",
"values": "long", "doc": "not kept"}), Codec("own", (str.encode, bytes.decode), schema=object()), utf8)]))
"""


def test_two_processes_describe_a_serde_alike() -> None:
    """The description of a serde does not depend on the order of sets or on addresses in memory."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", NODE], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    (text,) = texts
    found = plain.loads(text)
    assert found[0]["schema"]["structs"][0]["name"] == "Node"
    assert found[2:] == [
        {"name": "avro(map)", "schema": '{"type":"map","values":"long"}'},
        {"name": "own"},
        {"name": "utf8"},
    ]
    assert "0x" not in text


def struct(*fields: Any, name: str = "Order", **options: Any) -> Any:
    """Return the JSON serde of a struct."""
    return json(msgspec.defstruct(name, fields, **options))


ID = ("id", str)
VALUES: list[tuple[str, Any, Any, str]] = [
    ("the same", struct(ID), struct(ID), ""),
    ("another class of the same fields", struct(ID), struct(ID, name="Purchase"), ""),
    ("new field with a default", struct(ID), struct(ID, ("n", int, 0)), ""),
    ("new field that may be missing", struct(ID), struct(ID, ("n", int | msgspec.UnsetType, msgspec.UNSET)), ""),
    ("new field made by a function", struct(ID), struct(ID, ("n", list[int], msgspec.field(default_factory=list))), ""),
    ("fields in another order", struct(ID, ("n", int)), struct(("n", int), ID), ""),
    ("a default for a field of before", struct(ID, ("n", int)), struct(ID, ("n", int, 0)), ""),
    ("one more member of an enumeration", json(Literal["a"]), json(Literal["a", "b"]), ""),
    ("a class in a list", json(list[Part]), json(list[Part]), ""),
    (
        "new field without default",
        struct(ID),
        struct(ID, ("n", int), kw_only=True),
        "field 'n' of Order is new and has",
    ),
    ("field gone", struct(ID, ("n", int)), struct(ID), "field 'n' of Order is gone"),
    ("field retyped", struct(ID, ("n", int)), struct(ID, ("n", str)), "field 'n' of Order was int and is str"),
    ("default gone", struct(ID, ("n", int, 1)), struct(ID, ("n", int)), "had the default 1 and has none"),
    ("default changed", struct(ID, ("n", int, 1)), struct(ID, ("n", int, 2)), "had the default 1 and has 2"),
    ("written as a list", struct(ID), struct(ID, array_like=True), "was written as a JSON object and is written as a"),
    (
        "a list in another order",
        struct(ID, ("n", int), array_like=True),
        struct(("n", int), ID, array_like=True),
        "Order is written as a list, and its fields were id, n",
    ),
    ("tag", struct(ID, tag="a"), struct(ID, tag="b"), "with type = a and is written as a JSON object with type = b"),
    ("a member gone", json(Literal["a", "b"]), json(Literal["a"]), "was 'a' | 'b' and is 'a'"),
    ("deep inside", json(dict[str, list[int]]), json(dict[str, list[str]]), "was int and is str"),
    ("a union", json(int | None), json(int), "was None | int and is int"),
    ("values of a number", json(int), json(Literal[1]), "was int and is 1"),
    ("any JSON", json, json(int), "was json and is json(int)"),
    ("another serde", utf8, bytes_serde, "was utf8 and is bytes"),
    ("the order of numbers", int64, key_serde(int64), "was int64 and is int64 ordered"),
    ("avro", avro({"type": "map", "values": "long"}), avro({"type": "map", "values": "int"}), "was avro(map)"),
]


@pytest.mark.parametrize(("before", "now", "told"), [case[1:] for case in VALUES], ids=[case[0] for case in VALUES])
def test_values_that_could_not_be_read_are_told(before: Any, now: Any, told: str) -> None:
    """A change that makes stored values unreadable is told; the definition is compared after a way through JSON."""
    described = plain.loads(plain.dumps(describe_serde(before)))
    changes = value_changes(described, describe_serde(now))
    assert bool(changes) == bool(told)
    assert told in "".join(changes)


def test_keys_may_change_in_nothing_but_the_name_of_a_class() -> None:
    """A key with one field more has other bytes: the entry of before would never be found again."""
    order = describe_serde(struct(ID))
    assert key_changes(order, describe_serde(struct(ID, name="Purchase"))) == []
    assert key_changes(order, describe_serde(struct(ID, ("n", int, 0)))) == [
        "was json(Order(id: str)) and is json(Order(id: str, n: int = 0))"
    ]
    assert key_changes(describe_serde(struct(ID, ("n", int))), describe_serde(struct(("n", int), ID)))
    assert key_changes(describe_serde(utf8), describe_serde(utf8)) == []


def test_a_type_that_holds_itself_is_compared() -> None:
    """And shown once."""
    node = describe_serde(json(Node))
    assert value_changes(node, node) == []
    assert shown(node).startswith("json(Node(name: str, colour: ")
    assert "below: list[Node] = list()" in shown(node)


def test_a_codec_without_a_schema_is_its_name() -> None:
    """A codec without a schema is compared by its name, so a changed codec needs a new name."""
    make: Callable[[str], Codec[str]] = lambda name: Codec(name, (str.encode, bytes.decode))  # noqa: E731  # one line
    assert value_changes(describe_serde(make("words-1")), describe_serde(make("words-2"))) == [
        "was words-1 and is words-2"
    ]
    assert value_changes(describe_serde(make("words-1")), describe_serde(make("words-1"))) == []
