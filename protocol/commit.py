"""Commit messages: one checkpoint of one task, all that a restart needs (schemas/commit.v1.avsc)."""

import json
import struct
from importlib.resources import files
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer
from msgspec import Struct

from grete.protocol._wire import NONCE_SIZE, check_range, truncated
from grete.protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header_of,
    encode_header_of,
)
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import RollbackEntry

AvroRecord = dict[str, Any]  # as fastavro takes and gives it

SCHEMA_VERSION = 1

_VERSION = struct.Struct(">h")
_SCHEMA_FILE = files(__package__) / "schemas" / f"commit.v{SCHEMA_VERSION}.avsc"
_SCHEMA = parse_schema(json.loads(_SCHEMA_FILE.read_text("utf-8")))
# field → its name in the schema, where that is older than the word: names of the schema never change
SCHEMA_NAMES = {
    "checkpoint_id": "version",
    "rollback_history": "lineage",
    "bulk_write_id": "run_id",
    "frontiers": "fronts",
}
_FIELD_NAMES = {name: field for field, name in SCHEMA_NAMES.items()}


class ChannelCommit(Struct, frozen=True):
    """One producer's records in a partition: the last ``seq`` included, the offset of the first record not included."""

    producer: int
    generation: int
    checkpoint_id: int
    seq: int
    recovery_offset: int


class InputCommit(Struct, frozen=True):
    """One partition of a stream that the task reads; ``resume`` is the offset to read from after a restart (A7)."""

    topic: str
    partition: int
    resume: int
    channels: tuple[ChannelCommit, ...]


class OutputCommit(Struct, frozen=True):
    """One channel that the task writes; ``next_seq`` is that of its first record after this checkpoint."""

    topic: str
    partition: int
    next_seq: int


class ExternalInput(Struct, frozen=True):
    """One partition of a topic outside of the job; ``offset`` is that of its first record not included (A2)."""

    topic: str
    partition: int
    offset: int


class ProducerRollbacks(Struct, frozen=True):
    """The rollback history of one producer, as the task knows it (R4)."""

    producer: int
    rollback_history: tuple[RollbackEntry, ...]


class RoundStart(Struct, frozen=True):
    """A commit at which a rewrite round began: what is before it may be trimmed once it is old enough (K2)."""

    offset: int
    append_time_ms: int


class Frontier(Struct, frozen=True):
    """Progress of a channel: nothing below (``t`` µs, ``source``) may still come (D1); its digest (D3)."""

    topic: str
    partition: int
    producer: int
    t: int
    source: int
    digest: int


class DeterministicCommit(Struct, frozen=True):
    """The logical time of a commit: a source's position, last t and time lease in µs (D2); frontiers of channels read.

    An aligned task has frontiers alone, of the channels whose producers are deterministic (A2b).
    """

    position: int
    last_t: int
    lease: int
    frontiers: tuple[Frontier, ...]


class Commit(Struct, frozen=True):
    """One checkpoint of one task. The schema says what each field means."""

    producer: int
    generation: int
    checkpoint_id: int
    previous: int
    rollback_history: tuple[RollbackEntry, ...]
    outputs: tuple[OutputCommit, ...]
    data_count: int
    data_digest: int
    attempt: int
    cursor: bytes
    round_start: int
    base: int
    fingerprint: int
    at_end: bool
    inputs: tuple[InputCommit, ...]
    known: tuple[ProducerRollbacks, ...]
    external: tuple[ExternalInput, ...]
    deterministic: DeterministicCommit | None = None
    bulk_write_id: str | None = None
    nonce: bytes = bytes(NONCE_SIZE)
    round_started_ms: int = 0
    rounds: tuple[RoundStart, ...] = ()


def encode_commit(header: ChangelogHeader, commit: Commit) -> bytes:
    """Return a whole commit message. Raises ValueError: header and commit disagree, a field does not fit its type."""
    if header.generation != commit.generation:
        raise ValueError(f"commit of generation {commit.generation} under a header of generation {header.generation}")
    out = BytesIO()
    out.write(encode_header_of(ChangelogType.COMMIT, header))
    out.write(_VERSION.pack(SCHEMA_VERSION))
    try:
        schemaless_writer(out, _SCHEMA, _to_avro(commit))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"commit of checkpoint {commit.checkpoint_id}: a field does not fit its type: {error}"
        ) from error
    return out.getvalue()


def decode_commit(message: bytes) -> Commit:
    """Return the commit of a whole message. Raises UnsupportedFormat (another schema version), DecodeError."""
    header = decode_changelog_header_of(ChangelogType.COMMIT, message)
    at = CHANGELOG_HEADER_SIZE + _VERSION.size
    if len(message) < at:
        raise truncated("commit: schema version", at, message)
    (schema,) = _VERSION.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if schema != SCHEMA_VERSION:
        found = f"schema version {schema}, this build reads {SCHEMA_VERSION}"
        raise UnsupportedFormat(f"commit: {found}: upgrade before reading")
    source = BytesIO(message)
    source.seek(at)
    try:
        commit = _from_avro(schemaless_reader(source, _SCHEMA, None))
    except (EOFError, LookupError, ValueError, OverflowError) as error:  # the last: fastavro without its C part
        at = source.tell()
        raise DecodeError(f"commit: byte {at} of {len(message)} does not follow the schema: {error!r}") from error
    if source.tell() != len(message):
        raise DecodeError(f"commit: {len(message) - source.tell()} bytes after its end at {source.tell()}")
    if commit.generation != header.generation:
        raise DecodeError(f"commit of generation {commit.generation} under a header of generation {header.generation}")
    check_range("commit: checkpoint", commit.checkpoint_id)
    check_range("commit: data count", commit.data_count)
    return commit


def _to_avro(commit: Commit) -> AvroRecord:
    """Return plain dicts in the schema's field names."""
    record = _fields(commit)
    record["lineage"] = _rollback_history_to_avro(commit.rollback_history)
    record["outputs"] = list(map(_fields, commit.outputs))
    record["inputs"] = [{**_fields(read), "channels": list(map(_fields, read.channels))} for read in commit.inputs]
    record["known"] = [
        {"producer": of.producer, "lineage": _rollback_history_to_avro(of.rollback_history)} for of in commit.known
    ]
    record["external"] = list(map(_fields, commit.external))
    record["rounds"] = list(map(_fields, commit.rounds))
    if commit.deterministic is not None:
        frontiers = list(map(_fields, commit.deterministic.frontiers))
        record["deterministic"] = {**_fields(commit.deterministic), "fronts": frontiers}
    return record


def _fields(value: Any) -> AvroRecord:
    """Return the fields of a record under the schema's names, not of those inside it."""
    return {SCHEMA_NAMES.get(name, name): getattr(value, name) for name in value.__struct_fields__}


def _values(record: AvroRecord) -> AvroRecord:
    """Return a record of the schema under the names of its class."""
    return {_FIELD_NAMES.get(name, name): value for name, value in record.items()}


def _rollback_history_to_avro(rollback_history: tuple[RollbackEntry, ...]) -> list[dict[str, int]]:
    return [{"generation": entry.generation, "restored": entry.checkpoint_id} for entry in rollback_history]


def _from_avro(record: Any) -> Commit:
    """Return the commit of plain dicts, as ``_to_avro`` makes them."""
    if (deterministic := record["deterministic"]) is not None:
        deterministic["fronts"] = tuple(Frontier(**frontier) for frontier in deterministic["fronts"])
        record["deterministic"] = DeterministicCommit(**_values(deterministic))
    for read in record["inputs"]:
        read["channels"] = tuple(ChannelCommit(**_values(channel)) for channel in read["channels"])
    record["inputs"] = tuple(InputCommit(**read) for read in record["inputs"])
    record["known"] = tuple(
        ProducerRollbacks(of["producer"], _rollback_history_from_avro(of["lineage"])) for of in record["known"]
    )
    record["lineage"] = _rollback_history_from_avro(record["lineage"])
    record["outputs"] = tuple(OutputCommit(**output) for output in record["outputs"])
    record["external"] = tuple(ExternalInput(**external) for external in record["external"])
    record["rounds"] = tuple(RoundStart(**start) for start in record["rounds"])
    return Commit(**_values(record))


def _rollback_history_from_avro(rollback_history: list[dict[str, int]]) -> tuple[RollbackEntry, ...]:
    return tuple(RollbackEntry(entry["generation"], entry["restored"]) for entry in rollback_history)
