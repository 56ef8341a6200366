"""Messages of the members' topic of a job, as JSON: heartbeats, leaves, assignments (docs/decisions/0080), reports.

A build that does not know reports passes over them (docs/decisions/0134).
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from grete.protocol.errors import DecodeError, UnsupportedFormat

MEMBERS_VERSION = 1
REPORT_BYTES_MAX = 512 << 10  # as base64 it fits into a message of 1 MB, which brokers take unless told otherwise

_INT64_MAX = 2**63 - 1
_Count = Annotated[int, Meta(ge=0, le=_INT64_MAX)]
_CountOrNone = Annotated[int, Meta(ge=-1, le=_INT64_MAX)]  # -1: there is none
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Number = Annotated[int, Meta(ge=0, le=65_535)]  # of a partition

PartitionState = Literal["starting", "running", "stopping", "standby", "stored", "fenced", "halted"]


class HeldPartition(Struct, frozen=True, omit_defaults=True):
    """One partition as a member has it. ``stored``: only its files are there.

    ``position``: the checkpoint that the member's disk includes, 0: not known which, -1: none. ``behind``: how many
    messages of its changelogs a standby has still to read, -1: not known.
    """

    partition: _Number
    state: PartitionState
    position: _CountOrNone = -1
    behind: _CountOrNone = -1


class Heartbeat(Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    """A member lives, and has these partitions."""

    v: int = MEMBERS_VERSION
    member: _Name  # kept in the job directory
    session: _Name  # drawn at each start
    machine: Annotated[str, Meta(max_length=200)] = ""
    began: _CountOrNone = -1  # offset of the session's first heartbeat; -1: it is this one
    beat: _Count = 0  # rises with time, not with each message
    follows: _CountOrNone = -1  # offset of the assignment that the member has acted upon; -1: of none
    leaving: bool = False  # it is to stop, and goes on until others have its partitions
    warms: bool = False  # it can host standbys
    held: tuple[HeldPartition, ...] = ()
    code: _Name | UnsetType = UNSET  # a digest of the job's code; unset: it is not known
    timeout_ms: _Count | UnsetType = UNSET  # of silence, after which it wants to be taken for dead; unset: not known
    since_ms: _Count | UnsetType = (
        UNSET  # when the session began, in ms since 1970 by its machine's clock; unset: not known
    )


class EndedTask(Struct, frozen=True):
    """A task whose process has ended, and the generation that it had claimed."""

    task: _Name
    generation: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Leave(Struct, frozen=True, kw_only=True, tag_field="type", tag="leave"):
    """A session ends. ``halted``: the partitions for which a person must look. ``ended``: the tasks that it had run."""

    v: int = MEMBERS_VERSION
    member: _Name
    session: _Name
    halted: tuple[_Number, ...] = ()
    ended: tuple[EndedTask, ...] | UnsetType = UNSET  # unset: none, or not known


class MemberReport(Struct, frozen=True, kw_only=True, tag_field="type", tag="report"):
    """The state of a member's machine, for the pages of the others: ``body`` is theirs to read."""

    v: int = MEMBERS_VERSION
    session: _Name
    body: Annotated[bytes, Meta(max_length=REPORT_BYTES_MAX)]


class PartitionPlace(Struct, frozen=True, omit_defaults=True):
    """The sessions assigned to one partition. An empty owner: no member runs it.

    The owner starts when ``after`` has said that it has stopped, or is gone.
    """

    owner: Annotated[str, Meta(max_length=200)] = ""
    after: Annotated[str, Meta(max_length=200)] = ""
    standbys: tuple[_Name, ...] = ()


class HaltedPartition(Struct, frozen=True):
    """A partition that stays without an owner until the member where it halted is started again."""

    partition: _Number
    member: _Name
    session: _Name


class JobAssignment(Struct, frozen=True, kw_only=True, tag_field="type", tag="assignment"):
    """The assignment of each partition of the job, by number; ``session`` has written it."""

    v: int = MEMBERS_VERSION
    session: _Name
    places: tuple[PartitionPlace, ...]
    halted: tuple[HaltedPartition, ...] = ()


class _Versioned(Struct):
    v: int = MEMBERS_VERSION


MembersMessage = Heartbeat | Leave | JobAssignment | MemberReport

_encoder = msgspec.json.Encoder()
_version_decoder = msgspec.json.Decoder(_Versioned)
_decoder: msgspec.json.Decoder[MembersMessage] = msgspec.json.Decoder(MembersMessage)
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def encode_members_message(message: MembersMessage) -> bytes:
    """Return the message as JSON."""
    return _encoder.encode(message)


def decode_members_message(data: bytes) -> MembersMessage:
    """Raise DecodeError if it is no message of the members' topic, UnsupportedFormat if a newer build wrote it.

    Fields that this build does not know are left out.
    """
    try:
        version = _version_decoder.decode(data).v
        if version != MEMBERS_VERSION:
            raise UnsupportedFormat(
                f"members' message: version {version}, this build reads {MEMBERS_VERSION}: upgrade before reading"
            )
        return _decoder.decode(data)
    except _BAD as error:
        raise DecodeError(f"members' message of {len(data)} bytes: {error}") from error
