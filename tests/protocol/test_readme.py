"""The tables of protocol/README.md say what the code writes: types, layouts, names of fields."""

import re
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest

from grete.protocol import _wire, changelog, changelog_position, commit, control, envelope, notes
from grete.protocol.changelog import ChangelogType
from grete.protocol.envelope import MessageType
from grete.protocol.ids import RollbackEntry

README = Path(__file__).parents[2] / "protocol" / "README.md"
SIZES = {"INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8, "16 bytes": 16}


class Row(NamedTuple):
    """A row of a table: where the field is, if that is said; its name; its type; what it means."""

    at: str
    field: str
    kind: str
    meaning: str


def sections() -> dict[str, str]:
    """Return title → text of each section."""
    parts = re.split(r"^##+ ", README.read_text(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def layout(title: str) -> list[Row]:
    """Return the rows of the table of a section that has offsets."""
    table = sections()[title].partition("| at | field | type | meaning |\n|---|---|---|---|\n")[2].partition("\n\n")[0]
    return [Row(*(cell.strip() for cell in re.split(r" *(?<!\\)\| ?", row.strip("|")))) for row in table.splitlines()]


def snake(name: str) -> str:
    """Return a field's name as the code writes names."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])| ", "_", name).lower()


def of(*structs: Struct) -> list[tuple[int, str]]:
    """Return (size, code of the field in a struct) of the fields of some layouts, one after another."""
    codes = [code for each in structs for code in re.findall(r"\d+s|[a-zA-Z]", each.format)]
    return [(Struct(f">{code}").size, code) for code in codes]


BODIES = {
    "Checkpoint marker (0x11)": of(control._MARKER),
    "Rollback marker (0x12)": of(control._ROLLBACK_MARKER, control._ENTRY),
    "Progress message (0x13)": of(control._PROGRESS),
    "Joint progress (0x15)": of(control._ROWS),
    "Claim (0x1a)": of(changelog._CLAIM),
    "Input decision (0x1b)": of(changelog._INPUT_DECISION),
    "Input decision, format version 2 (0x2b)": of(changelog._TAKEN_ROWS),
    "Time lease (0x1c)": of(changelog._TIME_LEASE),
    "Output release (0x1d)": of(changelog._INT16, changelog._RELEASED),
    "Output release, format version 2 (0x2d)": of(changelog._INT16, changelog._RELEASED_V2),
    "Note (0x1f)": of(notes._IDLE),
    "Outcome (0x1e)": of(changelog._OUTCOME),
    "Commit (0x19)": of(commit._VERSION, commit._CRC),
    "Frame (0x10)": of(_wire._PREFIX),
    "Data (0x18)": of(_wire._PREFIX),
    "Watermark (0x14)": of(control._WATERMARK),
    "Streams": of(envelope._LAYOUT),
    "Changelog": of(changelog._LAYOUT),
    "Changelog position": of(changelog_position._LAYOUT),
}
NAMES = {
    "Streams": {"message_type": "type", "producer_id": "producer"},
    "Changelog": {"changelog_seq": "seq"},
    "Changelog position": {"checkpoint": "checkpoint_id"},
    "Rollback marker (0x12)": {"restored_checkpoint": "checkpoint_id"},
    "Claim (0x1a)": {"started": "started_ms"},
}  # of fields that the page calls otherwise than the code
FIELDS = {
    "Streams": envelope.Header._fields,
    "Changelog": changelog.ChangelogHeader._fields,
    "Changelog position": changelog_position.ChangelogPosition._fields,
    "Rollback marker (0x12)": ("fingerprint", "count", *RollbackEntry._fields),
    "Progress message (0x13)": ("t", "source"),
    "Claim (0x1a)": changelog.Claim._fields,
    "Input decision (0x1b)": changelog.InputDecision._fields[:-1],
    "Input decision, format version 2 (0x2b)": (*changelog.TakenRows._fields, "topic"),
    "Time lease (0x1c)": changelog.TimeLease._fields,
    "Outcome (0x1e)": changelog.Outcome._fields,
    "Note (0x1f)": ("kind", "idle", *notes.IdleNote._fields[:-1]),
}


@pytest.mark.parametrize("title", BODIES)
def test_a_table_has_the_fields_that_are_written(title: str) -> None:
    """The fields of one size each are those of the layout in the code: their sizes, their order, where they are."""
    rows = layout(title)[: len(BODIES[title])]
    assert [SIZES.get(row.kind) for row in rows] == [size for size, _ in BODIES[title]]
    unsigned = [row.field for row, (_, code) in zip(rows, BODIES[title], strict=True) if code == "I"]
    assert [row.field for row in rows if row.meaning.startswith("unsigned")] == [f for f in unsigned if f != "crc32"]
    placed = [(int(row.at), size) for row, (size, _) in zip(rows, BODIES[title], strict=True) if row.at]
    assert all(here + size == there for (here, size), (there, _) in pairwise(placed))
    heads = {"Streams": 0, "Changelog": 0, "Changelog position": 0, "Input decision, format version 2 (0x2b)": 49}
    of_streams = title.endswith(")") and int(title[-5:-1], 16) & 0xF < 8
    body = envelope.HEADER_SIZE if of_streams else changelog.CHANGELOG_HEADER_SIZE
    assert placed[0][0] == heads.get(title, body)


@pytest.mark.parametrize("title", FIELDS)
def test_a_table_names_the_fields_as_the_code_does(title: str) -> None:
    """Each field of the page has the code's name."""
    other = NAMES.get(title, {})
    assert sorted(other.get(name := snake(row.field), name) for row in layout(title)) == sorted(FIELDS[title])


def test_each_message_has_a_table() -> None:
    """A layout that only the code has would be unknown to other readers of the format."""
    assert {title for title in sections() if layout(title)} == set(BODIES)
    found = {int(title[-5:-1], 16) for title in BODIES if title.endswith(")")}
    second = {kind for kind in ChangelogType if _wire.type_byte(kind, 2) in changelog._TYPES}
    first = [*MessageType, *ChangelogType]
    assert found == {_wire.type_byte(kind) for kind in first} | {_wire.type_byte(kind, 2) for kind in second}


@pytest.mark.parametrize(("title", "types"), [("Streams", MessageType), ("Changelog", ChangelogType)])
def test_the_types_are_those_of_the_code(title: str, types: type[MessageType | ChangelogType]) -> None:
    """The row of the type lists each one, and each heading has the byte of the type that it names."""
    meaning = layout(title)[0].meaning.partition("low 4 bits: ")[2].replace("checkpoint marker", "marker")
    listed = {number: snake(name) for number, name in re.findall(r"(\d+) ([a-z ]+)", meaning)}
    named = {"PROGRESS": "progress_message"}
    assert listed == {str(kind.value): named.get(kind.name, kind.name.lower()) for kind in types}
    for heading in (each for each in BODIES if each.endswith(")")):
        number = str(int(heading[-5:-1], 16) & 0xF)
        name = heading.partition(" (")[0].partition(",")[0].lower().replace("checkpoint marker", "marker")
        assert listed.get(number, snake(name)) == snake(name)


def test_the_free_types_and_sizes_are_those_of_the_code() -> None:
    """The page names the types that are free, and the sizes of the headers and the changelog position."""
    text = README.read_text()
    free = sorted(set(range(8)) - set(MessageType))
    assert set(range(8, 16)) == set(ChangelogType)
    assert f"a free type: {free[0]} to {free[-1]} in streams; none is left in changelogs" in text
    assert free == list(range(free[0], free[-1] + 1))
    assert f"this header of {envelope.HEADER_SIZE} bytes" in sections()["Streams"]
    assert f"this header of {changelog.CHANGELOG_HEADER_SIZE} bytes" in sections()["Changelog"]
    assert f"{changelog_position.CHANGELOG_POSITION_SIZE} bytes in" in sections()["Changelog position"]


def test_each_module_is_listed() -> None:
    """The first table leads to every module that others import, and to no other."""
    table = README.read_text().partition("| module | holds |")[2].partition("\n\n")[0]
    listed = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1:2][0] if row else "")
    }
    assert listed == {path.stem for path in README.parent.glob("[!_]*.py")}
