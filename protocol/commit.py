"""Commit messages: one checkpoint of one task, all that a restart needs. protocol/README.md has the bytes."""

import json
import struct
import zlib
from importlib.resources import files
from io import BytesIO
from itertools import chain, groupby, repeat
from typing import Annotated, Any

import msgspec
from fastavro import parse_schema, schemaless_reader
from msgspec import Meta, Struct
from msgspec.structs import asdict, astuple

from grete.protocol._wire import NONCE_SIZE, check_crc, check_range, truncated
from grete.protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header_of,
    encode_header_of,
)
from grete.protocol.commit_columns import IntColumn, first_column, from_tables, to_tables, values_of
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import RollbackEntry

AvroRecord = dict[str, Any]  # as fastavro takes and gives it

SCHEMA_VERSION = 2
AVRO_VERSION = 1  # of releases up to 0.4.0, only read

_VERSION = struct.Struct(">h")
_CRC = struct.Struct(">I")
_SCHEMA_FILE = files(__package__) / "schemas" / f"commit.v{AVRO_VERSION}.avsc"
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


_Int = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Body(Struct, array_like=True, forbid_unknown_fields=True):
    """The fields of a commit, in their order, with tables in columns: they are split where what rows share changes."""

    producer: _Int
    generation: _Int
    checkpoint_id: _Int
    previous: _Int
    rollback_history: tuple[RollbackEntry, ...]
    outputs: list[tuple[str, list[int], IntColumn]]
    data_count: _Int
    data_digest: _Int
    attempt: _Int
    cursor: bytes
    round_start: _Int
    base: _Int
    fingerprint: _Int
    at_end: bool
    inputs: list[tuple[str, _Int, _Int, list[tuple[list[int], IntColumn, IntColumn, IntColumn, IntColumn]]]]
    known: list[tuple[tuple[RollbackEntry, ...], list[int]]]
    external: list[tuple[str, list[int], IntColumn]]
    deterministic: tuple[_Int, _Int, _Int, list[tuple[str, _Int, list[int], IntColumn, IntColumn, IntColumn]]] | None
    bulk_write_id: str | None
    nonce: Annotated[bytes, Meta(min_length=NONCE_SIZE, max_length=NONCE_SIZE)]
    round_started_ms: _Int
    rounds: list[tuple[_Int, _Int]]


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_Body)


def encode_commit(header: ChangelogHeader, commit: Commit) -> bytes:
    """Return a whole commit message. Raises ValueError: header and commit disagree, a field does not fit its type."""
    if header.generation != commit.generation:
        raise ValueError(f"commit of generation {commit.generation} under a header of generation {header.generation}")
    try:
        body = _ENCODER.encode(_to_body(commit))
        _DECODER.decode(body)  # what cannot be read is not written
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(
            f"commit of checkpoint {commit.checkpoint_id}: a field does not fit its type: {error}"
        ) from error
    head = encode_header_of(ChangelogType.COMMIT, header)
    return b"".join((head, _VERSION.pack(SCHEMA_VERSION), _CRC.pack(zlib.crc32(body)), body))


def decode_commit(message: bytes) -> Commit:
    """Return the commit of a whole message. Raises UnsupportedFormat (another schema version), DecodeError."""
    header = decode_changelog_header_of(ChangelogType.COMMIT, message)
    at = CHANGELOG_HEADER_SIZE + _VERSION.size
    if len(message) < at:
        raise truncated("commit: schema version", at, message)
    (schema,) = _VERSION.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if schema == SCHEMA_VERSION:
        commit = _decode_body(message, at)
    elif schema == AVRO_VERSION:
        commit = _decode_avro(message, at)
    else:
        found = f"schema version {schema}, this build reads {AVRO_VERSION} and {SCHEMA_VERSION}"
        raise UnsupportedFormat(f"commit: {found}: upgrade before reading")
    if commit.generation != header.generation:
        raise DecodeError(f"commit of generation {commit.generation} under a header of generation {header.generation}")
    check_range("commit: checkpoint", commit.checkpoint_id)
    check_range("commit: data count", commit.data_count)
    return commit


def _to_body(commit: Commit) -> _Body:
    logical = commit.deterministic
    changed = {
        "outputs": to_tables(commit.outputs, 1),
        "inputs": [(read.topic, read.partition, read.resume, to_tables(read.channels, 0)) for read in commit.inputs],
        "known": [
            (history, first_column([each.producer for each in same]))
            for history, same in groupby(commit.known, lambda each: each.rollback_history)
        ],
        "external": to_tables(commit.external, 1),
        "deterministic": logical and (*astuple(logical)[:-1], to_tables(logical.frontiers, 2)),
        "rounds": list(map(astuple, commit.rounds)),
    }
    return _Body(**(asdict(commit) | changed))


def _decode_body(message: bytes, at: int) -> Commit:
    if len(message) < at + _CRC.size:
        raise truncated("commit: crc32", at + _CRC.size, message)
    check_crc("commit", message, at + _CRC.size, *_CRC.unpack_from(message, at))
    try:
        body = _DECODER.decode(memoryview(message)[at + _CRC.size :])
    except ValueError as error:  # as those of msgspec are
        raise DecodeError(f"commit: its body does not follow schema version {SCHEMA_VERSION}: {error}") from error
    logical = body.deterministic
    known = [map(ProducerRollbacks, *values_of(producers), repeat(history)) for history, producers in body.known]
    changed = {
        "outputs": from_tables(OutputCommit, body.outputs, 1),
        "inputs": tuple(
            InputCommit(topic, partition, resume, from_tables(ChannelCommit, tables, 0))
            for topic, partition, resume, tables in body.inputs
        ),
        "known": tuple(chain.from_iterable(known)),
        "external": from_tables(ExternalInput, body.external, 1),
        "deterministic": logical and DeterministicCommit(*logical[:-1], from_tables(Frontier, logical[-1], 2)),
        "rounds": tuple(RoundStart(*start) for start in body.rounds),
    }
    return Commit(**(asdict(body) | changed))


def _decode_avro(message: bytes, at: int) -> Commit:
    source = BytesIO(message)
    source.seek(at)
    try:
        commit = _from_avro(schemaless_reader(source, _SCHEMA, None))
    except (EOFError, LookupError, ValueError, OverflowError) as error:  # the last: fastavro without its C part
        at = source.tell()
        raise DecodeError(f"commit: byte {at} of {len(message)} does not follow the schema: {error!r}") from error
    if source.tell() != len(message):
        raise DecodeError(f"commit: {len(message) - source.tell()} bytes after its end at {source.tell()}")
    return commit


def _values(record: AvroRecord) -> AvroRecord:
    """Return a record of the schema under the names of its class."""
    return {_FIELD_NAMES.get(name, name): value for name, value in record.items()}


def _from_avro(record: Any) -> Commit:
    """Return the commit of plain dicts in the schema's field names."""
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
