"""The bytes on the wire never change under a format version."""

import json
from pathlib import Path

import pytest

from grete.protocol import changelog, commit, envelope
from tests.protocol.golden import GOLDEN, Golden

CLASSES = {"ProducerLineage": "ProducerRollbacks", "Front": "Frontier"}  # by the schema's name, where that is older
BY_NAME = pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])


@BY_NAME
def test_encodes_to_frozen_bytes(golden: Golden) -> None:
    """Each value is written as exactly the bytes frozen for its format."""
    assert golden.data.hex() == golden.encode().hex()


@BY_NAME
def test_decodes_frozen_bytes(golden: Golden) -> None:
    """The bytes frozen for each format are read as the value that they stood for."""
    assert golden.value == golden.decode(golden.data)


def test_every_type_has_golden_bytes() -> None:
    """No message type is without frozen bytes."""
    first_bytes = {golden.data[0] for golden in GOLDEN}
    types = {*envelope.MessageType, *changelog.ChangelogType}
    assert {1 << 4 | kind for kind in types} <= first_bytes


def test_sizes_are_those_of_the_design() -> None:
    """The headers take 25 and 17 bytes."""
    assert (25, 17) == (envelope.HEADER_SIZE, changelog.CHANGELOG_HEADER_SIZE)


def test_schema_explains_and_covers_every_field() -> None:
    """Each record and field of the commit schema has a doc; its fields are those of the class, in order."""
    text = (Path(commit.__file__).parent / "schemas" / f"commit.v{commit.AVRO_VERSION}.avsc").read_text()
    undocumented: list[str] = []
    records: dict[str, list[str]] = {}

    def visit(node: object) -> None:
        if isinstance(node, list):
            for item in node:
                visit(item)
        elif isinstance(node, dict):
            if node.get("type") == "record":
                records[node["name"]] = [field["name"] for field in node["fields"]]
            undocumented.extend(
                n["name"] for n in [node, *node.get("fields", [])] if "fields" in node and not n.get("doc")
            )
            for item in node.values():
                visit(item)

    visit(json.loads(text))
    assert undocumented == []
    assert {name: fields for name, fields in records.items() if name != "LineageEntry"} == {
        name: [
            commit.SCHEMA_NAMES.get(field, field)
            for field in getattr(commit, CLASSES.get(name, name)).__struct_fields__
        ]
        for name in records
        if name != "LineageEntry"
    }
    assert records["LineageEntry"] == ["generation", "restored"]  # generation and checkpoint_id of a RollbackEntry
