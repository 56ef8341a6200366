"""The messages of a changelog in words."""

import msgspec

from grete.clock_text import clock_text
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_claim, decode_data, decode_outcome
from grete.protocol.commit import decode_commit
from grete.protocol.errors import DecodeError
from grete.state.read.shown import printable


class ToldMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message in words; one that cannot be read has no generation and no seq."""

    generation: int | None = None
    seq: int | None = None
    type: str
    text: str


def message_in(value: bytes) -> ToldMessage:
    """Return a message in words."""
    try:
        header = decode_changelog_header(value)
        text = _said(header.type, value)
    except DecodeError as error:
        return ToldMessage(type="unknown", text=f"not a changelog message: {error}")
    return ToldMessage(generation=header.generation, seq=header.seq, type=header.type.name.lower(), text=text)


def _said(kind: ChangelogType, value: bytes) -> str:
    match kind:
        case ChangelogType.DATA:
            data = decode_data(value)
            tombstones = sum(cell is None for cell in data.values)
            return f"{len(data.keys):,} keys, {tombstones:,} of them deleted, {len(value):,} bytes"
        case ChangelogType.COMMIT:
            commit = decode_commit(value)
            name = commit.bulk_write_id
            bulk_write = "" if name is None else f", of the bulk write {printable(name)}"
            return (
                f"checkpoint {commit.checkpoint_id} after {commit.previous}, {commit.data_count:,} data "
                f"messages{bulk_write}"
            )
        case ChangelogType.OUTCOME:
            outcome = decode_outcome(value)
            does = "counts" if outcome.counts else "does not count"
            return f"the bulk write {printable(outcome.bulk_write_id)} {does}"
        case ChangelogType.CLAIM:
            claim = decode_claim(value)
            return f"process {claim.pid} on {printable(claim.host)}, started {clock(claim.started_ms)}"
        case _:
            return ""


def clock(time_ms: int) -> str:
    """Return a time in ms since 1970 by the clock of this machine."""
    return clock_text(time_ms) + f".{time_ms % 1000:03d}"
