"""Messages of a changelog: header, data, claim, decision, lease, release, outcome (PROTOCOL.md 1.2, 1.3, 1.8, D2, D5).

Commits: grete.protocol.commit.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from grete.protocol import _wire
from grete.protocol._wire import NONCE_SIZE, PREFIX_SIZE
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition


class ChangelogType(IntEnum):
    """The type of a changelog message. 0 to 7 belong to streams."""

    DATA = 8
    COMMIT = 9
    CLAIM = 10
    INPUT_DECISION = 11
    TIME_LEASE = 12
    OUTPUT_RELEASE = 13
    OUTCOME = 14
    NOTE = 15  # of several kinds: grete.protocol.notes


class ChangelogHeader(NamedTuple):
    """``seq`` counts from 0 (the claim) in one (generation, attempt); ``attempt`` is 0 but for Spark."""

    type: ChangelogType
    generation: int
    seq: int
    attempt: int


class Data(NamedTuple):
    """Writes in order; a value of None is a tombstone. ``reset_stores`` start empty here; None: this is no reset.

    ``REWRITTEN``, a reset of no store, says that the writes of a task are no changes, but for the tombstones.
    """

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


class TakenRows(NamedTuple):
    """The rows of an input decision: the offset of the last one, and ``grete.protocol.frames.digest_rows`` of all."""

    last_offset: int
    digest: int


class InputDecision(NamedTuple):
    """A source took ``records`` records from ``first_offset`` on, at t from ``first_t`` to ``last_t`` µs (D2).

    ``rows`` proves which records they were; None in format version 1, which does not say.
    """

    topic: str
    partition: int
    first_offset: int
    records: int
    first_t: int
    last_t: int
    rows: TakenRows | None = None


class TimeLease(NamedTuple):
    """Progress messages up to ``t`` µs may have been sent; a successor starts above it (D2)."""

    t: int


class Outcome(NamedTuple):
    """Whether the commits of a bulk write count. That of task (0, 0) decides, those elsewhere are copies (1.8)."""

    bulk_write_id: str
    counts: bool


class OutputRelease(NamedTuple):
    """Outputs became visible with this message: of each (topic, partition) outside, all up to this seq (D5).

    ``digests``: one for each of ``seqs``, over the task's records in that partition up to it; None in format version 1.
    """

    seqs: tuple[tuple[TopicPartition, int], ...]
    digests: tuple[int, ...] | None = None


REWRITTEN: tuple[int, ...] = ()  # as ``reset_stores``

GENERATION_MAX = (1 << 31) - 1  # a header has four bytes for it

_LAYOUT = struct.Struct(">Biqi")
_V2 = 2  # format version of input decisions and output releases that carry digests
_TYPES = {_wire.type_byte(kind): kind for kind in ChangelogType}
_TYPES |= {_wire.type_byte(kind, _V2): kind for kind in (ChangelogType.INPUT_DECISION, ChangelogType.OUTPUT_RELEASE)}
_RESET = 1
_INT16 = struct.Struct(">h")
_CLAIM = struct.Struct(">iq16s")
_INPUT_DECISION = struct.Struct(">iqiqq")
_TAKEN_ROWS = struct.Struct(">qI")
_TIME_LEASE = struct.Struct(">q")
_OUTCOME = struct.Struct(">B")
_RELEASED = struct.Struct(">iq")
_RELEASED_V2 = struct.Struct(">iqI")

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


def encode_header_of(kind: ChangelogType, header: ChangelogHeader, version: int = 1) -> bytes:
    """Return 17 bytes of this format version. Raises ValueError if the header is of another type."""
    if header.type is not kind:
        raise ValueError(f"{header}: a {kind.name} needs a header of that type")
    encoded = encode_changelog_header(header)
    return encoded if version == 1 else bytes((_wire.type_byte(kind, version),)) + encoded[1:]


def _version_of(message: bytes) -> int:
    return message[0] >> 4


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


def resets_of(message: bytes) -> tuple[int, ...] | None:
    """Return the ``reset_stores`` of a data message, without its writes. Raises UnsupportedFormat, DecodeError."""
    decode_changelog_header_of(ChangelogType.DATA, message)
    at = CHANGELOG_HEADER_SIZE + PREFIX_SIZE
    _wire.check_room("data: flags", message, CHANGELOG_HEADER_SIZE, PREFIX_SIZE)
    return _decode_resets(message, at)[0] if message[CHANGELOG_HEADER_SIZE] & _RESET else None


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


def encode_input_decision(header: ChangelogHeader, decision: InputDecision) -> bytes:
    """Return an input decision: of format version 2 if it proves its rows. Raises ValueError out of range."""
    topic, *fields, rows = decision
    head = encode_header_of(ChangelogType.INPUT_DECISION, header, 1 if rows is None else _V2)
    body = _wire.pack("decision", _INPUT_DECISION, *fields)
    if rows is not None:
        body += _wire.pack("decision: last offset, digest", _TAKEN_ROWS, *rows)
    return head + body + _wire.pack_text("decision: topic", topic)


def decode_input_decision(message: bytes) -> InputDecision:
    """Raise UnsupportedFormat or DecodeError if it is not an input decision."""
    decode_changelog_header_of(ChangelogType.INPUT_DECISION, message)
    fixed = CHANGELOG_HEADER_SIZE + _INPUT_DECISION.size
    at = fixed if _version_of(message) == 1 else fixed + _TAKEN_ROWS.size
    if len(message) < at:
        raise _wire.truncated("decision", at, message)
    partition, first_offset, records, first_t, last_t = _INPUT_DECISION.unpack_from(message, CHANGELOG_HEADER_SIZE)
    rows = None if at == fixed else TakenRows(*_TAKEN_ROWS.unpack_from(message, fixed))
    topic, end = _wire.unpack_text("decision: topic", message, at)
    _wire.check_size("decision", message, end)
    for name, value in (("partition", partition), ("first offset", first_offset), ("records", records)):
        _wire.check_range(f"decision: {name}", value)
    if rows is not None:
        _wire.check_range("decision: last offset", rows.last_offset, first_offset)
    return InputDecision(topic, partition, first_offset, records, first_t, last_t, rows)


def encode_time_lease(header: ChangelogHeader, lease: TimeLease) -> bytes:
    """Return a time lease. Raises ValueError out of range."""
    return encode_header_of(ChangelogType.TIME_LEASE, header) + _wire.pack("lease: t", _TIME_LEASE, lease.t)


def decode_time_lease(message: bytes) -> TimeLease:
    """Raise UnsupportedFormat or DecodeError if it is not a time lease."""
    decode_changelog_header_of(ChangelogType.TIME_LEASE, message)
    _wire.check_size("lease", message, CHANGELOG_HEADER_SIZE + _TIME_LEASE.size)
    return TimeLease(*_TIME_LEASE.unpack_from(message, CHANGELOG_HEADER_SIZE))


def encode_outcome(header: ChangelogHeader, outcome: Outcome) -> bytes:
    """Return an outcome. Raises ValueError out of range."""
    head = encode_header_of(ChangelogType.OUTCOME, header)
    return head + _OUTCOME.pack(outcome.counts) + _wire.pack_text("outcome: bulk write id", outcome.bulk_write_id)


def decode_outcome(message: bytes) -> Outcome:
    """Raise UnsupportedFormat or DecodeError if it is not an outcome."""
    decode_changelog_header_of(ChangelogType.OUTCOME, message)
    at = CHANGELOG_HEADER_SIZE + _OUTCOME.size
    if len(message) < at:
        raise _wire.truncated("outcome", at, message)
    (counts,) = _OUTCOME.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if counts not in (0, 1):
        raise DecodeError(f"outcome: {counts} is neither 0 (does not count) nor 1 (counts)")
    bulk_write_id, end = _wire.unpack_text("outcome: bulk write id", message, at)
    _wire.check_size("outcome", message, end)
    return Outcome(bulk_write_id, bool(counts))


def encode_output_release(header: ChangelogHeader, release: OutputRelease) -> bytes:
    """Return an output release, of format version 2 if it has digests. Raises ValueError: out of range, uneven."""
    seqs, digests = release
    parts = [encode_header_of(ChangelogType.OUTPUT_RELEASE, header, 1 if digests is None else _V2)]
    parts.append(_wire.pack("release: count", _INT16, len(seqs)))
    if digests is not None and len(digests) != len(seqs):
        raise ValueError(f"release of {len(seqs)} seqs, {len(digests)} digests: need equal counts")
    for index, ((topic, partition), seq) in enumerate(seqs):
        if digests is None:
            parts.append(_wire.pack("release: partition, seq", _RELEASED, partition, seq))
        else:
            fields = partition, seq, digests[index]
            parts.append(_wire.pack("release: partition, seq, digest", _RELEASED_V2, *fields))
        parts.append(_wire.pack_text("release: topic", topic))
    return b"".join(parts)


def decode_output_release(message: bytes) -> OutputRelease:
    """Raise UnsupportedFormat or DecodeError if it is not an output release."""
    decode_changelog_header_of(ChangelogType.OUTPUT_RELEASE, message)
    layout = _RELEASED if _version_of(message) == 1 else _RELEASED_V2
    at = CHANGELOG_HEADER_SIZE + _INT16.size
    if len(message) < at:
        raise _wire.truncated("release", at, message)
    count = _wire.check_range("release: count", _INT16.unpack_from(message, CHANGELOG_HEADER_SIZE)[0])
    _wire.check_room(f"release: count {count}", message, at, count * (layout.size + 2))
    seqs, digests = [], []
    for _ in range(count):
        start = at + layout.size
        if len(message) < start:
            raise _wire.truncated("release", start, message)
        partition, seq, *digest = layout.unpack_from(message, at)
        topic, at = _wire.unpack_text("release: topic", message, start)
        _wire.check_range("release: seq", seq)
        seqs.append((TopicPartition(topic, _wire.check_range("release: partition", partition)), seq))
        digests += digest
    _wire.check_size("release", message, at)
    return OutputRelease(tuple(seqs), None if layout is _RELEASED else tuple(digests))
