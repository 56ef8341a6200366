"""The messages of a changelog in words."""

from typing import Any

from grete.clock_text import clock_text
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_claim, decode_data, decode_outcome
from grete.protocol.commit import decode_commit
from grete.state.shown import printable


def message_in(value: bytes) -> dict[str, Any]:
    """Return generation, seq and type of a message, and in words what it says. Raises DecodeError."""
    header = decode_changelog_header(value)
    return {
        "generation": header.generation,
        "seq": header.seq,
        "type": header.type.name.lower(),
        "text": _said(header.type, value),
    }


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
