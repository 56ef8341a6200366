"""Messages of a changelog: header, data, claim, decision, lease, release, verdict (design 1.2, 1.3, 1.8, D2, D5).

Commits: protocol.commit.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from protocol import _wire
from protocol._wire import NONCE_SIZE, PREFIX_SIZE
from protocol.errors import DecodeError
from protocol.ids import TopicPartition


class ChangelogType(IntEnum):
    """What a message of a changelog is. 0 to 7 belong to streams."""

    DATA = 8
    COMMIT = 9
    CLAIM = 10
    DECISION = 11
    LEASE = 12
    RELEASE = 13
    VERDICT = 14


class ChangelogHeader(NamedTuple):
    """``seq`` counts from 0 (the claim) in one (generation, attempt); ``attempt`` is 0 but for Spark."""

    type: ChangelogType
    generation: int
    seq: int
    attempt: int


class Data(NamedTuple):
    """Writes in order; a value of None is a tombstone. ``reset_stores`` start empty here; None: this is no reset."""

    stores: Sequence[int]
    keys: list[bytes]
    values: list[bytes | None]
    reset_stores: tuple[int, ...] | None


class Claim(NamedTuple):
    """A process takes the task (C1): 16 random bytes, and for people: host, process id, wall clock at its start."""

    nonce: bytes
    host: str
    pid: int
    started_ms: int


class Decision(NamedTuple):
    """A source took ``records`` records from ``first_offset`` on, at t from ``first_t`` to ``last_t`` µs (D2)."""

    topic: str
    partition: int
    first_offset: int
    records: int
    first_t: int
    last_t: int


class Lease(NamedTuple):
    """Heartbeats up to ``t`` µs may have been sent; a successor starts above it (D2)."""

    t: int


class Verdict(NamedTuple):
    """Whether the commits of a run count. In the changelog of task (0, 0) it decides, elsewhere it is a copy (1.8)."""

    run_id: str
    counts: bool


class Release(NamedTuple):
    """Outputs became visible with this message: of each (topic, partition) outside, all up to this seq (D5)."""

    seqs: tuple[tuple[TopicPartition, int], ...]


_LAYOUT = struct.Struct(">Biqi")
_TYPES = {_wire.type_byte(kind): kind for kind in ChangelogType}
_RESET = 1
_INT16 = struct.Struct(">h")
_CLAIM = struct.Struct(">iq16s")
_DECISION = struct.Struct(">iqiqq")
_LEASE = struct.Struct(">q")
_VERDICT = struct.Struct(">B")
_RELEASED = struct.Struct(">iq")

CHANGELOG_HEADER_SIZE = _LAYOUT.size


def encode_changelog_header(header: ChangelogHeader) -> bytes:
    """Return 17 bytes. Raises ValueError if a field is negative or too large."""
    kind, generation, seq, attempt = header
    if generation < 0 or seq < 0 or attempt < 0:
        raise ValueError(f"{header}: no field may be negative")
    return _wire.pack("changelog header", _LAYOUT, _wire.type_byte(kind), generation, seq, attempt)


def decode_changelog_header(message: bytes) -> ChangelogHeader:
    """Return the header of a message of any type. Raises UnsupportedFormat, DecodeError."""
    if len(message) < CHANGELOG_HEADER_SIZE:
        raise _wire.truncated("changelog header", CHANGELOG_HEADER_SIZE, message)
    byte, generation, seq, attempt = _LAYOUT.unpack_from(message)
    kind = _TYPES.get(byte)
    if kind is None:
        raise _wire.unknown_type(byte, [f"{known.name} ({known.value})" for known in ChangelogType])
    if generation < 0 or seq < 0 or attempt < 0:
        raise DecodeError(f"changelog header: generation {generation}, seq {seq}, attempt {attempt}: negative")
    return ChangelogHeader(kind, generation, seq, attempt)


def decode_changelog_header_of(kind: ChangelogType, message: bytes) -> ChangelogHeader:
    """Return the header of a message that must be of one type. Raises UnsupportedFormat, DecodeError."""
    header = decode_changelog_header(message)
    if header.type is not kind:
        raise DecodeError(f"expected a {kind.name}, found a {header.type.name}")
    return header


def encode_header_of(kind: ChangelogType, header: ChangelogHeader) -> bytes:
    """Return 17 bytes. Raises ValueError if the header is of another type: it would be read as something else."""
    if header.type is not kind:
        raise ValueError(f"{header}: a {kind.name} needs a header of that type")
    return encode_changelog_header(header)


def encode_data(
    header: ChangelogHeader,
    stores: Sequence[int],
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    reset_stores: Sequence[int] | None = None,
) -> bytes:
    """Return a data message; ``reset_stores`` start empty here, before its writes. Raises ValueError."""
    head, count = encode_header_of(ChangelogType.DATA, header), len(keys)
    key_lengths = list(map(len, keys))
    value_lengths, cells = _wire.measure(values)
    if count != len(stores) or count != len(value_lengths):
        raise ValueError(f"data of {len(stores)} store ids, {count} keys, {len(values)} values: need equal counts")
    try:
        resets = b""
        if reset_stores is not None:
            resets = struct.pack(f">h{len(reset_stores)}h", len(reset_stores), *reset_stores)
        fixed = struct.pack(f">{count}h{count}i{count}i", *stores, *key_lengths, *value_lengths)
    except struct.error as error:
        raise ValueError(f"data of {count} writes: a store id or a length is out of range: {error}") from error
    rest = b"".join(chain((resets, fixed), keys, cells))
    return head + _wire.seal(0 if reset_stores is None else _RESET, count, rest)


def decode_data(message: bytes) -> Data:
    """Return the writes of a data message. Raises UnsupportedFormat, DecodeError."""
    decode_changelog_header_of(ChangelogType.DATA, message)
    flags, count, crc = _wire.read_prefix("data", message, CHANGELOG_HEADER_SIZE, _RESET)
    at = CHANGELOG_HEADER_SIZE + PREFIX_SIZE
    _wire.check_room(f"data: count {count}", message, at, count * 10)
    _wire.check_crc("data", message, at, crc)
    reset_stores = None
    if flags & _RESET:
        reset_stores, at = _decode_resets(message, at)
        _wire.check_room(f"data: count {count}", message, at, count * 10)
    ints = f">{count}i"
    stores = struct.unpack_from(f">{count}h", message, at)
    key_lengths = struct.unpack_from(ints, message, at + 2 * count)
    value_lengths = struct.unpack_from(ints, message, at + 6 * count)
    keys, at = _wire.cut("data: keys", message, at + 10 * count, key_lengths)
    values, at = _wire.cut_nullable("data: values", message, at, value_lengths)
    _wire.check_size("data", message, at)
    return Data(stores, keys, values, reset_stores)


def _decode_resets(message: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return (stores, position after them)."""
    _wire.check_room("data: reset count", message, at, _INT16.size)
    count, at = _wire.check_range("data: reset count", _INT16.unpack_from(message, at)[0]), at + _INT16.size
    _wire.check_room(f"data: reset count {count}", message, at, 2 * count)
    return struct.unpack_from(f">{count}h", message, at), at + 2 * count


def encode_claim(header: ChangelogHeader, claim: Claim) -> bytes:
    """Return a claim. Raises ValueError if the nonce is not 16 bytes or a field is out of range."""
    if len(claim.nonce) != NONCE_SIZE:
        raise ValueError(f"claim: nonce of {len(claim.nonce)} bytes, need {NONCE_SIZE}")
    head, host = encode_header_of(ChangelogType.CLAIM, header), _wire.pack_text("claim: host", claim.host)
    return head + _wire.pack("claim: pid, started_ms, nonce", _CLAIM, claim.pid, claim.started_ms, claim.nonce) + host


def decode_claim(message: bytes) -> Claim:
    """Raise UnsupportedFormat or DecodeError if it is not a claim."""
    decode_changelog_header_of(ChangelogType.CLAIM, message)
    at = CHANGELOG_HEADER_SIZE + _CLAIM.size
    if len(message) < at:
        raise _wire.truncated("claim", at, message)
    pid, started_ms, nonce = _CLAIM.unpack_from(message, CHANGELOG_HEADER_SIZE)
    host, end = _wire.unpack_text("claim: host", message, at)
    _wire.check_size("claim", message, end)
    return Claim(nonce, host, _wire.check_range("claim: pid", pid), _wire.check_range("claim: started_ms", started_ms))


def encode_decision(header: ChangelogHeader, decision: Decision) -> bytes:
    """Return a decision. Raises ValueError out of range."""
    topic, *fields = decision
    head, body = encode_header_of(ChangelogType.DECISION, header), _wire.pack("decision", _DECISION, *fields)
    return head + body + _wire.pack_text("decision: topic", topic)


def decode_decision(message: bytes) -> Decision:
    """Raise UnsupportedFormat or DecodeError if it is not a decision."""
    decode_changelog_header_of(ChangelogType.DECISION, message)
    at = CHANGELOG_HEADER_SIZE + _DECISION.size
    if len(message) < at:
        raise _wire.truncated("decision", at, message)
    partition, first_offset, records, first_t, last_t = _DECISION.unpack_from(message, CHANGELOG_HEADER_SIZE)
    topic, end = _wire.unpack_text("decision: topic", message, at)
    _wire.check_size("decision", message, end)
    for name, value in (("partition", partition), ("first offset", first_offset), ("records", records)):
        _wire.check_range(f"decision: {name}", value)
    return Decision(topic, partition, first_offset, records, first_t, last_t)


def encode_lease(header: ChangelogHeader, lease: Lease) -> bytes:
    """Return a lease. Raises ValueError out of range."""
    return encode_header_of(ChangelogType.LEASE, header) + _wire.pack("lease: t", _LEASE, lease.t)


def decode_lease(message: bytes) -> Lease:
    """Raise UnsupportedFormat or DecodeError if it is not a lease."""
    decode_changelog_header_of(ChangelogType.LEASE, message)
    _wire.check_size("lease", message, CHANGELOG_HEADER_SIZE + _LEASE.size)
    return Lease(*_LEASE.unpack_from(message, CHANGELOG_HEADER_SIZE))


def encode_verdict(header: ChangelogHeader, verdict: Verdict) -> bytes:
    """Return a verdict. Raises ValueError out of range."""
    head, run_id = encode_header_of(ChangelogType.VERDICT, header), _wire.pack_text("verdict: run id", verdict.run_id)
    return head + _VERDICT.pack(verdict.counts) + run_id


def decode_verdict(message: bytes) -> Verdict:
    """Raise UnsupportedFormat or DecodeError if it is not a verdict."""
    decode_changelog_header_of(ChangelogType.VERDICT, message)
    at = CHANGELOG_HEADER_SIZE + _VERDICT.size
    if len(message) < at:
        raise _wire.truncated("verdict", at, message)
    (counts,) = _VERDICT.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if counts not in (0, 1):
        raise DecodeError(f"verdict: {counts} is neither 0 (void) nor 1 (counts)")
    run_id, end = _wire.unpack_text("verdict: run id", message, at)
    _wire.check_size("verdict", message, end)
    return Verdict(run_id, bool(counts))


def encode_release(header: ChangelogHeader, release: Release) -> bytes:
    """Return a release. Raises ValueError out of range."""
    parts = [encode_header_of(ChangelogType.RELEASE, header)]
    parts.append(_wire.pack("release: count", _INT16, len(release.seqs)))
    for (topic, partition), seq in release.seqs:
        parts.append(_wire.pack("release: partition, seq", _RELEASED, partition, seq))
        parts.append(_wire.pack_text("release: topic", topic))
    return b"".join(parts)


def decode_release(message: bytes) -> Release:
    """Raise UnsupportedFormat or DecodeError if it is not a release."""
    decode_changelog_header_of(ChangelogType.RELEASE, message)
    at = CHANGELOG_HEADER_SIZE + _INT16.size
    if len(message) < at:
        raise _wire.truncated("release", at, message)
    count = _wire.check_range("release: count", _INT16.unpack_from(message, CHANGELOG_HEADER_SIZE)[0])
    _wire.check_room(f"release: count {count}", message, at, count * (_RELEASED.size + 2))
    seqs = []
    for _ in range(count):
        start = at + _RELEASED.size
        if len(message) < start:
            raise _wire.truncated("release", start, message)
        partition, seq = _RELEASED.unpack_from(message, at)
        topic, at = _wire.unpack_text("release: topic", message, start)
        _wire.check_range("release: seq", seq)
        seqs.append((TopicPartition(topic, _wire.check_range("release: partition", partition)), seq))
    _wire.check_size("release", message, at)
    return Release(tuple(seqs))
