"""Commit messages: one version of one task, all that a restart needs (design 1.2; schemas/commit.v1.avsc)."""

import json
import struct
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from protocol._wire import NONCE_SIZE, check_range, truncated
from protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header_of,
    encode_header_of,
)
from protocol.errors import DecodeError, UnsupportedFormat
from protocol.ids import LineageEntry

SCHEMA_VERSION = 1

_VERSION = struct.Struct(">h")
_SCHEMA_FILE = files("protocol") / "schemas" / f"commit.v{SCHEMA_VERSION}.avsc"
_SCHEMA = parse_schema(json.loads(_SCHEMA_FILE.read_text("utf-8")))


@dataclass(frozen=True, slots=True)
class ChannelCommit:
    """One producer's records in a partition: the last ``seq`` included, the offset of the first record not included."""

    producer: int
    generation: int
    version: int
    seq: int
    recovery_offset: int


@dataclass(frozen=True, slots=True)
class InputCommit:
    """One partition of a stream that the task reads; ``resume`` is the offset to read from after a restart (A7)."""

    topic: str
    partition: int
    resume: int
    channels: tuple[ChannelCommit, ...]


@dataclass(frozen=True, slots=True)
class OutputCommit:
    """One channel that the task writes; ``next_seq`` is that of its first record after this version."""

    topic: str
    partition: int
    next_seq: int


@dataclass(frozen=True, slots=True)
class ExternalInput:
    """One partition of a topic outside of the job; ``offset`` is that of its first record not included (A2)."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ProducerLineage:
    """What the task knows of one producer's incarnations (R4)."""

    producer: int
    lineage: tuple[LineageEntry, ...]


@dataclass(frozen=True, slots=True)
class RoundStart:
    """A commit at which a sweep round began: what stands before it may be trimmed once it is old enough (K2)."""

    offset: int
    append_time_ms: int


@dataclass(frozen=True, slots=True)
class Front:
    """How far a channel is known: nothing below (``t`` µs, ``source``) may still come (D1); its digest (D3)."""

    topic: str
    partition: int
    producer: int
    t: int
    source: int
    digest: int


@dataclass(frozen=True, slots=True)
class DeterministicCommit:
    """Where logical time stands: a source's position, last t and lease in µs (D2); fronts of the channels read.

    An aligned task has fronts alone, of the channels whose producers are deterministic (A2b).
    """

    position: int
    last_t: int
    lease: int
    fronts: tuple[Front, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of one task. What each field means stands in the schema, once."""

    producer: int
    generation: int
    version: int
    previous: int
    lineage: tuple[LineageEntry, ...]
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
    known: tuple[ProducerLineage, ...]
    external: tuple[ExternalInput, ...]
    deterministic: DeterministicCommit | None = None
    run_id: str | None = None
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
        raise ValueError(f"commit of version {commit.version}: a field does not fit its type: {error}") from error
    return out.getvalue()


def decode_commit(message: bytes) -> Commit:
    """Return the commit of a whole message. Raises UnsupportedFormat (another schema version), DecodeError."""
    header = decode_changelog_header_of(ChangelogType.COMMIT, message)
    at = CHANGELOG_HEADER_SIZE + _VERSION.size
    if len(message) < at:
        raise truncated("commit: schema version", at, message)
    (version,) = _VERSION.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if version != SCHEMA_VERSION:
        found = f"schema version {version}, this build reads {SCHEMA_VERSION}"
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
    check_range("commit: version", commit.version)
    check_range("commit: data count", commit.data_count)
    return commit


def _to_avro(commit: Commit) -> dict[str, Any]:  # Any: what fastavro takes
    """Return plain dicts in the schema's field names."""
    record = _fields(commit)
    record["lineage"] = _lineage_to_avro(commit.lineage)
    record["outputs"] = list(map(_fields, commit.outputs))
    record["inputs"] = [{**_fields(read), "channels": list(map(_fields, read.channels))} for read in commit.inputs]
    record["known"] = [{"producer": of.producer, "lineage": _lineage_to_avro(of.lineage)} for of in commit.known]
    record["external"] = list(map(_fields, commit.external))
    record["rounds"] = list(map(_fields, commit.rounds))
    if commit.deterministic is not None:
        fronts = list(map(_fields, commit.deterministic.fronts))
        record["deterministic"] = {**_fields(commit.deterministic), "fronts": fronts}
    return record


def _fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, not of those inside it."""
    return {name: getattr(value, name) for name in value.__slots__}


def _lineage_to_avro(lineage: tuple[LineageEntry, ...]) -> list[dict[str, int]]:
    return [entry._asdict() for entry in lineage]


def _from_avro(record: Any) -> Commit:
    """Return the commit of plain dicts, as ``_to_avro`` makes them."""
    if (deterministic := record["deterministic"]) is not None:
        deterministic["fronts"] = tuple(Front(**front) for front in deterministic["fronts"])
        record["deterministic"] = DeterministicCommit(**deterministic)
    for read in record["inputs"]:
        read["channels"] = tuple(ChannelCommit(**channel) for channel in read["channels"])
    record["inputs"] = tuple(InputCommit(**read) for read in record["inputs"])
    record["known"] = tuple(
        ProducerLineage(of["producer"], _lineage_from_avro(of["lineage"])) for of in record["known"]
    )
    record["lineage"] = _lineage_from_avro(record["lineage"])
    record["outputs"] = tuple(OutputCommit(**output) for output in record["outputs"])
    record["external"] = tuple(ExternalInput(**external) for external in record["external"])
    record["rounds"] = tuple(RoundStart(**start) for start in record["rounds"])
    return Commit(**record)


def _lineage_from_avro(lineage: list[dict[str, int]]) -> tuple[LineageEntry, ...]:
    return tuple(LineageEntry(**entry) for entry in lineage)
