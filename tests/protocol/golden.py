"""Frozen bytes of every format, written by hand, field by field: a change is a new format version, never an edit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    Data,
    InputDecision,
    Outcome,
    OutputRelease,
    TakenRows,
    TimeLease,
    decode_changelog_header,
    decode_claim,
    decode_data,
    decode_input_decision,
    decode_outcome,
    decode_output_release,
    decode_time_lease,
    encode_changelog_header,
    encode_claim,
    encode_data,
    encode_input_decision,
    encode_outcome,
    encode_output_release,
    encode_time_lease,
)
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.commit import decode_commit, encode_commit
from grete.protocol.control import (
    Marker,
    ProgressMessage,
    RollbackMarker,
    Watermark,
    decode_joint_progress,
    decode_marker,
    decode_progress,
    decode_rollback_marker,
    decode_watermark,
    encode_joint_progress,
    encode_marker,
    encode_progress,
    encode_rollback_marker,
    encode_watermark,
)
from grete.protocol.envelope import Header, MessageType, decode_header, encode_header
from grete.protocol.frames import decode_columns, decode_headers, encode_columns, encode_headers
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.protocol.members import (
    EndedTask,
    HaltedPartition,
    Heartbeat,
    HeldPartition,
    JobAssignment,
    Leave,
    MemberReport,
    MembersMessage,
    PartitionPlace,
    decode_members_message,
    encode_members_message,
)
from grete.protocol.notes import CallResult, CallsNote, IdleNote, decode_note, encode_calls, encode_note
from grete.protocol.record_batch import RecordBatch
from tests.protocol.avro_commit import encode_avro
from tests.protocol.golden_commits import (
    COMMIT_HEADER,
    LARGE,
    LARGE_2_HEX,
    LARGE_HEX,
    NONCE,
    NONCE_HEX,
    SMALL,
    SMALL_2_HEX,
    SMALL_HEX,
    WHERE_HEX,
    WIDE,
    WIDE_HEX,
)


class Golden(NamedTuple):
    """One format: its bytes, the value they stand for, and the two functions between them."""

    name: str
    data: bytes
    value: Any
    encode: Callable[[], bytes]
    decode: Callable[[bytes], Any]


# type, producer 1 × 65,536 + 2, generation 3, checkpoint 200, seq 7
WHO = (65_538, 3, 200, 7)
WHO_HEX = "00010002 00000003 00000000000000c8 0000000000000007"
ROW_HEX = "00010002 00000003 0000000000000007 0000000000000100"  # of the same, t = 256
FRAME_HEADER = Header(MessageType.FRAME, *WHO)
# generation 3, ChangelogSeq 5, attempt 0
DATA_HEADER = ChangelogHeader(ChangelogType.DATA, 3, 5, 0)
USER_HEADERS = (("id", b"\x01\x02"), ("id", b""))
USER_HEADERS_HEX = "00000002 0002 6964 00000002 0102 0002 6964 00000000"

NULL_HEADERS = (("id", None), ("id", b""))
NULL_HEADERS_HEX = "fffffffd 0002 6964 ffffffff 0002 6964 00000000"

PLAIN = RecordBatch([b"k", b"ab"], [b"v1", b""], (1000, 1001), None)
PLAIN_HEX = (
    f"10 {WHO_HEX} 00 00000002 4e61f040"  # flags none, count 2, crc32
    " 00000001 00000002 00000002 00000000"  # key lengths, value lengths
    " 00000000000003e8 00000000000003e9"  # timestamps
    " 6b 6162 7631"  # keys, values
)
FULL = RecordBatch(
    [None, b"k"], [b"v", None], (-1, 2), [None, encode_headers(USER_HEADERS)], ((10, 11), (1, 2)), 0xFFFFFFFE
)
FULL_HEX = (
    f"10 {WHO_HEX} 03 00000002 f58fcbe1"  # logical time and headers, count 2, crc32
    " ffffffff 00000001 00000001 ffffffff"  # key lengths, value lengths: -1 = null
    " ffffffffffffffff 0000000000000002"  # timestamps
    " fffffffe 000000000000000a 000000000000000b 00000001 00000002"  # digest, t, source ids
    " ffffffff 00000016"  # header lengths
    f" 6b 76 {USER_HEADERS_HEX}"  # keys, values, headers
)
NULLED = RecordBatch([b"k"], [b"v"], (1,), [encode_headers(NULL_HEADERS)])
NULLED_HEX = (
    f"10 {WHO_HEX} 06 00000001 266d6f60"  # headers, one of them null, count 1, crc32
    " 00000001 00000001 0000000000000001"  # key length, value length, timestamp
    " 00000014"  # header length
    f" 6b 76 {NULL_HEADERS_HEX}"  # key, value, headers
)
WRITES = Data((0, 7), [b"k", b""], [None, b"xyz"], None)
WRITES_HEX = (
    f"18 {WHERE_HEX} 00 00000002 76e2d70c"  # no reset, count 2, crc32
    " 0000 0007 00000001 00000000 ffffffff 00000003"  # store ids, key lengths, value lengths
    " 6b 78797a"
)
RESET = Data((), [], [], (0, 1))
RESET_HEX = f"18 {WHERE_HEX} 01 00000000 bc05c255 0002 0000 0001"  # reset, count 0, crc32, 2 stores
REWRITTEN_DATA = Data((7,), [b"k"], [b"v"], ())
REWRITTEN_HEX = (
    f"18 {WHERE_HEX} 01 00000001 605a6ba2 0000"  # reset, count 1, crc32, no store
    " 0007 00000001 00000001 6b 76"  # store id, lengths, key, value
)


def _frame(columns: RecordBatch) -> bytes:
    keys, values, timestamps, headers, logical, digest = columns[:6]
    return encode_header(FRAME_HEADER) + encode_columns(
        keys, values, timestamps, headers, logical=logical, digest=digest
    )


def _data(data: Data) -> bytes:
    return encode_data(DATA_HEADER, *data)


def _header(kind: MessageType) -> Header:
    return Header(kind, *WHO)


def _where(kind: ChangelogType) -> ChangelogHeader:
    return DATA_HEADER._replace(type=kind)


_ROLLBACK_HISTORY = (RollbackEntry(1, -1), RollbackEntry(3, 200))
_CLAIM = Claim(NONCE, "höst", 4711, 1_000)
_OUTPUT_RELEASE = OutputRelease(((TopicPartition("out", 2), 256),))
_INPUT_DECISION = InputDecision("ext", 1, 100, 20, 5, 6)
_RELEASE_2 = OutputRelease(((TopicPartition("out", 2), 256),), (0xFFFFFFFE,))
_CALLED = CallsNote(((7, (CallResult(ok=True, data=b"abc"), CallResult(ok=False, data=b"x"))),))
_DECISION_2 = InputDecision("ext", 1, 100, 20, 5, 6, TakenRows(255, 0xFFFFFFFE))

_ROWS: tuple[tuple[str, str, Any, Callable[[], bytes], Callable[[bytes], Any]], ...] = (
    ("header", f"11 {WHO_HEX}", _header(MessageType.MARKER), lambda: encode_header(_header(MessageType.MARKER)),
     decode_header),
    ("frame", PLAIN_HEX, PLAIN, lambda: _frame(PLAIN), decode_columns),
    ("frame, all columns", FULL_HEX, FULL, lambda: _frame(FULL), decode_columns),
    ("frame, a null header", NULLED_HEX, NULLED, lambda: _frame(NULLED), decode_columns),
    ("user headers, a null", NULL_HEADERS_HEX, NULL_HEADERS, lambda: encode_headers(NULL_HEADERS), decode_headers),
    ("user headers", USER_HEADERS_HEX, USER_HEADERS, lambda: encode_headers(USER_HEADERS), decode_headers),
    ("marker", f"11 {WHO_HEX} 00", Marker(_header(MessageType.MARKER), at_end=False),
     lambda: encode_marker(*WHO, at_end=False), decode_marker),
    ("marker at end", f"11 {WHO_HEX} 01", Marker(_header(MessageType.MARKER), at_end=True),
     lambda: encode_marker(*WHO, at_end=True), decode_marker),
    ("restore", f"12 {WHO_HEX} fffffffffffffffe 00000002 00000001 ffffffffffffffff 00000003 00000000000000c8",
     RollbackMarker(_header(MessageType.ROLLBACK_MARKER), -2, _ROLLBACK_HISTORY),
     lambda: encode_rollback_marker(*WHO, -2, _ROLLBACK_HISTORY), decode_rollback_marker),
    ("heartbeat", f"13 {WHO_HEX} 0000000000000100 00000002", ProgressMessage(_header(MessageType.PROGRESS), 256, 2),
     lambda: encode_progress(*WHO, 256, 2), decode_progress),
    ("joint progress",
     f"15 {WHO_HEX} 00000002 {ROW_HEX} 00000009 00000001 0000000000000002 0000000000000101",
     [ProgressMessage(_header(MessageType.PROGRESS), 256, 2**31 - 1),
      ProgressMessage(Header(MessageType.PROGRESS, 9, 1, WHO[2], 2), 257, 2**31 - 1)],
     lambda: encode_joint_progress(WHO[2], [(*WHO[:2], WHO[3], 256), (9, 1, 2, 257)]), decode_joint_progress),
    ("watermark", f"14 {WHO_HEX} 00 00000001 0000000000000100",
     Watermark(_header(MessageType.WATERMARK), idle=False, watermarks=(256,)),
     lambda: encode_watermark(*WHO, idle=False, watermarks=(256,)), decode_watermark),
    ("watermark, idle", f"14 {WHO_HEX} 01 00000001 8000000000000000",
     Watermark(_header(MessageType.WATERMARK), idle=True, watermarks=(-(2**63),)),
     lambda: encode_watermark(*WHO, idle=True, watermarks=(-(2**63),)), decode_watermark),
    ("watermarks with logical times",
     f"14 {WHO_HEX} 02 00000002 0000000000000100 0000000000000101 000000000000000a 000000000000000b",
     Watermark(_header(MessageType.WATERMARK), idle=False, watermarks=(256, 257), times=(10, 11)),
     lambda: encode_watermark(*WHO, idle=False, watermarks=(256, 257), times=(10, 11)), decode_watermark),
    ("changelog header", f"1b {WHERE_HEX}", _where(ChangelogType.INPUT_DECISION),
     lambda: encode_changelog_header(_where(ChangelogType.INPUT_DECISION)), decode_changelog_header),
    ("data", WRITES_HEX, WRITES, lambda: _data(WRITES), decode_data),
    ("reset", RESET_HEX, RESET, lambda: _data(RESET), decode_data),
    ("rewritten", REWRITTEN_HEX, REWRITTEN_DATA, lambda: _data(REWRITTEN_DATA), decode_data),
    ("claim", f"1a {WHERE_HEX} 00001267 00000000000003e8 {NONCE_HEX} 0005 68c3b67374", _CLAIM,
     lambda: encode_claim(_where(ChangelogType.CLAIM), _CLAIM), decode_claim),
    ("decision", f"1b {WHERE_HEX} 00000001 0000000000000064 00000014 0000000000000005 0000000000000006 0003 657874",
     _INPUT_DECISION, lambda: encode_input_decision(_where(ChangelogType.INPUT_DECISION), _INPUT_DECISION),
     decode_input_decision),
    ("decision, format 2",
     (f"2b {WHERE_HEX} 00000001 0000000000000064 00000014 0000000000000005 0000000000000006 "
      "00000000000000ff fffffffe 0003 657874"),
     _DECISION_2, lambda: encode_input_decision(_where(ChangelogType.INPUT_DECISION), _DECISION_2),
     decode_input_decision),
    ("lease", f"1c {WHERE_HEX} 0000000000000100", TimeLease(256),
     lambda: encode_time_lease(_where(ChangelogType.TIME_LEASE), TimeLease(256)), decode_time_lease),
    ("note, idle", f"1f {WHERE_HEX} 01 00000001 0000000000000100 01 0003 657874", IdleNote("ext", 1, 256),
     lambda: encode_note(_where(ChangelogType.NOTE), IdleNote("ext", 1, 256)), decode_note),
    ("note, calls", (f"1f {WHERE_HEX} 02 00000001 0000000000000007 00000002 "
                     "01 00000003 616263 00 00000001 78"), _CALLED,
     lambda: encode_calls(_where(ChangelogType.NOTE), _CALLED), decode_note),
    ("note, ended", f"1f {WHERE_HEX} 05 00000001 0000000000000100 01 0003 657874", IdleNote("ext", 1, 256, ended=True),
     lambda: encode_note(_where(ChangelogType.NOTE), IdleNote("ext", 1, 256, ended=True)), decode_note),
    ("verdict", f"1e {WHERE_HEX} 01 0001 72", Outcome("r", counts=True),
     lambda: encode_outcome(_where(ChangelogType.OUTCOME), Outcome("r", counts=True)), decode_outcome),
    ("release", f"1d {WHERE_HEX} 0001 00000002 0000000000000100 0003 6f7574", _OUTPUT_RELEASE,
     lambda: encode_output_release(_where(ChangelogType.OUTPUT_RELEASE), _OUTPUT_RELEASE), decode_output_release),
    ("release, format 2", f"2d {WHERE_HEX} 0001 00000002 0000000000000100 fffffffe 0003 6f7574", _RELEASE_2,
     lambda: encode_output_release(_where(ChangelogType.OUTPUT_RELEASE), _RELEASE_2), decode_output_release),
    ("commit", SMALL_HEX, SMALL, lambda: encode_avro(COMMIT_HEADER, SMALL), decode_commit),
    ("commit, all fields", LARGE_HEX, LARGE, lambda: encode_avro(COMMIT_HEADER, LARGE), decode_commit),
    ("commit, schema 2", SMALL_2_HEX, SMALL, lambda: encode_commit(COMMIT_HEADER, SMALL), decode_commit),
    ("commit, schema 2, all fields", LARGE_2_HEX, LARGE, lambda: encode_commit(COMMIT_HEADER, LARGE), decode_commit),
    ("commit, schema 2, tables", WIDE_HEX, WIDE, lambda: encode_commit(COMMIT_HEADER, WIDE), decode_commit),
    ("pointer", f"0000000000000064 00000003 00000000000000c8 {NONCE_HEX}", ChangelogPosition(100, 3, 200, NONCE),
     lambda: encode_changelog_position(ChangelogPosition(100, 3, 200, NONCE)), decode_changelog_position),
)  # fmt: skip

_TEXTS: tuple[tuple[str, str, MembersMessage], ...] = (
    (
        "heartbeat",
        (
            '{"type":"heartbeat","v":1,"member":"m","session":"s","machine":"x","began":7,"beat":3,"follows":9,'
            '"leaving":true,"warms":false,"held":[{"partition":2,"state":"running","position":5},'
            '{"partition":0,"state":"standby","behind":8}]}'
        ),
        Heartbeat(
            member="m",
            session="s",
            machine="x",
            began=7,
            beat=3,
            follows=9,
            leaving=True,
            held=(HeldPartition(2, "running", 5), HeldPartition(0, "standby", behind=8)),
        ),
    ),
    (
        "heartbeat with code",
        (
            '{"type":"heartbeat","v":1,"member":"m","session":"s","machine":"","began":-1,"beat":0,"follows":-1,'
            '"leaving":false,"warms":false,"held":[],"code":"1f2e3d4c"}'
        ),
        Heartbeat(member="m", session="s", code="1f2e3d4c"),
    ),
    (
        "heartbeat with a time-out",
        (
            '{"type":"heartbeat","v":1,"member":"m","session":"s","machine":"","began":-1,"beat":0,"follows":-1,'
            '"leaving":false,"warms":false,"held":[],"timeout_ms":2000}'
        ),
        Heartbeat(member="m", session="s", timeout_ms=2_000),
    ),
    (
        "heartbeat with its beginning",
        (
            '{"type":"heartbeat","v":1,"member":"m","session":"s","machine":"","began":-1,"beat":0,"follows":-1,'
            '"leaving":false,"warms":false,"held":[],"since_ms":1795699607000}'
        ),
        Heartbeat(member="m", session="s", since_ms=1_795_699_607_000),
    ),
    (
        "leave",
        '{"type":"leave","v":1,"member":"m","session":"s","halted":[4]}',
        Leave(member="m", session="s", halted=(4,)),
    ),
    (
        "leave with the tasks that have ended",
        '{"type":"leave","v":1,"member":"m","session":"s","halted":[],"ended":[{"task":"count-4","generation":7}]}',
        Leave(member="m", session="s", ended=(EndedTask("count-4", 7),)),
    ),
    (
        "assignment",
        (
            '{"type":"assignment","v":1,"session":"s","places":[{"owner":"s","after":"t","standbys":["u"]},{}],'
            '"halted":[{"partition":1,"member":"m","session":"t"}]}'
        ),
        JobAssignment(
            session="s",
            places=(PartitionPlace("s", "t", ("u",)), PartitionPlace()),
            halted=(HaltedPartition(1, "m", "t"),),
        ),
    ),
    (
        "report of a member",
        '{"type":"report","v":1,"session":"s","body":"AAEC"}',
        MemberReport(session="s", body=b"\x00\x01\x02"),
    ),
)

GOLDEN = (
    *(Golden(name, bytes.fromhex(data), value, encode, decode) for name, data, value, encode, decode in _ROWS),
    *(
        Golden(name, text.encode(), value, partial(encode_members_message, value), decode_members_message)
        for name, text, value in _TEXTS
    ),
)
