"""Sets in JSON, where a dict of the same value has keys that msgspec cannot sort, and what version 1 wrote of them."""

import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8
from grete.api.serdes.serde import first_serde
from grete.testing import Kit


@dataclass
class Profile:
    tags: set[str]
    hits: dict[int, int]


class Named(NamedTuple):
    tags: frozenset[str]
    n: int


class Renamed(msgspec.Struct, rename="camel", tag=True, omit_defaults=True):
    """A struct whose names in JSON are not those of its attributes."""

    hits_by_hour: dict[int, int]
    some_tags: set[str] = field(default_factory=set)
    inner: list[Profile] = []
    rest: int = 0


class Row(msgspec.Struct, array_like=True):
    """A struct that is a list in JSON."""

    tags: set[str]
    hits: dict[int, int]


WORDS = {"red", "green", "blue", "white", "black"}
SORTED = '["black","blue","green","red","white"]'
HITS = {2: 1, 1: 2}
INNER = '{"tags":["a","b"],"hits":{}}'


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (Profile, Profile(WORDS, HITS), f'{{"tags":{SORTED},"hits":{{"2":1,"1":2}}}}'),
        (
            Renamed,
            Renamed(HITS, WORDS, [Profile({"b", "a"}, {})]),
            f'{{"type":"Renamed","hitsByHour":{{"2":1,"1":2}},"someTags":{SORTED},"inner":[{INNER}]}}',
        ),
        (Row, Row(WORDS, HITS), f'[{SORTED},{{"2":1,"1":2}}]'),
        (dict[int, Named], {1: Named(frozenset(WORDS), 3)}, f'{{"1":[{SORTED},3]}}'),
        (dict[int, set[tuple[str, int]]], {1: {("b", 1), ("a", 2)}}, '{"1":[["a",2],["b",1]]}'),
        (dict[int, list[int]], {2: [3, 1], 1: []}, '{"2":[3,1],"1":[]}'),
    ],
    ids=["dataclass", "struct", "list", "named tuple", "tuples", "no set"],
)
def test_version_1_sorts_sets_and_dicts_keep_their_order(type_: Any, value: Any, text: str) -> None:
    """A set at any place comes back; values without one are written as before."""
    assert first_serde(json(type_)).encode(value) == text.encode()
    assert json(type_).decode(text.encode()) == value


SEEDED = """
from tests.api.test_json_sets import *
print(json(Profile).encode(Profile(WORDS, HITS)))
"""


def test_such_a_value_has_the_same_bytes_in_every_process() -> None:
    """Their hashes are not the same."""
    asked = [sys.executable, "-c", SEEDED]
    found = {
        subprocess.run(asked, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


class Collect(Task):
    """Keeps a profile, and sends it on."""

    visits = Input(Topic("visits", key=utf8, value=json))
    store = Store("store", key=utf8, value=json(Profile))
    out = Output(Topic("profiles", key=utf8, value=json(Profile)))

    def process(self, record: Record[str, Any]) -> None:
        profile = self.store.get(record.key, Profile(set(), {}))
        profile.tags.add(record.value)
        profile.hits[len(profile.tags)] = 1
        self.store.put(record.key, profile)
        self.out.send(record.key, profile)


job = Job("profiles", stages=[Collect], mode="deterministic")


def test_a_task_that_uses_one_is_deterministic() -> None:
    """It depends on its records and its state alone, and is not blamed for a serde."""
    kit = Kit(job)
    for number in range(12):
        kit.feed(Topic("visits", key=utf8, value=json), "ann", f"tag {number % 9}")
        kit.advance(50)
    kit.check_determinism()
