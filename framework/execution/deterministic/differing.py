"""Names the outputs that a task has made differently the second time, with both records where it can read them (D5)."""

from collections.abc import Callable

from grete.api.topics.reader import origin_of
from grete.errors import FrameworkError, Halted, OffsetOutOfRange
from grete.execution.deterministic.numbering import content_of
from grete.execution.deterministic.remade import OutputsDiffer
from grete.execution.limits import REMADE_SEARCH_ROWS_MAX
from grete.halts import HaltCode
from grete.logs.partition_reader import rows_left
from grete.ports import ExternalRecord, Log, LogRow
from grete.protocol.frames import decode_headers
from grete.quoting import key_text, value_text

_WHAT_TO_DO = (
    "If its code was changed while it had not stopped gracefully, put the code of before back, stop it gracefully, "
    "then start the new code. Else: a deterministic task must make the same outputs of the same input: no clock, no "
    "randomness, no order of a set; `grete check-determinism` finds the record. Once its code is deterministic, start "
    "the job under another name: what is visible does not follow from the committed state"
)


def seq_of(cell: bytes | None, producer: bytes) -> int | None:
    """Return the seq in a record's headers, if they name this producer."""
    if cell is None or producer not in cell:
        return None
    origin = origin_of(decode_headers(cell))
    return origin.seq if origin is not None and origin.producer.encode() == producer else None


def explained(error: OutputsDiffer, name: str, producer: bytes, log: Log) -> Halted:
    """Return the halt of task ``name``: the range of seqs, and the record that differs if the topic may be read."""
    one = error.first == error.last
    seqs = f"output seq {error.first}" if one else f"one or more of the outputs seq {error.first} to {error.last}"
    found = (
        f"{name} is not deterministic: after a restart it made {seqs} in {error.differing} again, and not as "
        f"{'it is' if one else 'they are'} visible there"
    )
    try:
        named = _named(error, producer, log)
    except (FrameworkError, OffsetOutOfRange) as refused:
        right = f"the worker needs the right to read {error.differing.topic}"
        named = f"Which record it is could not be read ({right}): {refused}"
    return Halted(
        f"{found}. {named}. {_WHAT_TO_DO}",
        task=name,
        partition=error.differing,
        offset=error.offset,
        code=HaltCode.NOT_DETERMINISTIC,
    )


def _named(error: OutputsDiffer, producer: bytes, log: Log) -> str:
    rows = _visible(error, producer, log)
    for seq, record in enumerate(error.made, error.last - len(error.made) + 1):
        if seq in rows:
            parts = _parts(rows[seq], record)
            if parts:
                return f"Seq {seq}, at offset {rows[seq].offset}: {'; '.join(parts)}"
    if not rows:
        return f"The record that differs is not among the last {REMADE_SEARCH_ROWS_MAX:,} of the partition"
    return "The records that can still be compared are equal, so it is another one of the range"


def _parts(was: LogRow, record: ExternalRecord) -> list[str]:
    """Return in what a record differs from the visible one."""
    compared: tuple[tuple[str, Callable[[object], str], object, object], ...] = (
        ("timestamp", repr, was.timestamp_ms, record.timestamp_ms),
        ("key", key_text, was.key, record.key),
        ("value", value_text, was.value, record.value),
        ("headers", value_text, _content(was.headers), _content(record.headers)),
    )
    parts = [f"{name} {shown(b):.80} is visible, {shown(a):.80} was made" for name, shown, b, a in compared if a != b]
    return parts[1:] if len(parts) > 1 and parts[0].startswith("timestamp") else parts


def _content(cell: bytes | None) -> bytes | None:
    return None if cell is None else content_of(cell)


def _visible(error: OutputsDiffer, producer: bytes, log: Log) -> dict[int, LogRow]:
    """Return the visible records of the range, by seq."""
    partition, (start, end) = error.differing, log.bounds(error.differing)
    found: dict[int, LogRow] = {}
    if error.offset is not None:
        start = max(start, error.offset)
        end = min(end, start + 1)
    size, stop = 1_000, end
    while stop > start and end - stop < REMADE_SEARCH_ROWS_MAX and min(found, default=error.last + 1) > error.first:
        begin = max(start, stop - size)
        for row in rows_left(log, partition, begin, stop):
            seq = seq_of(row.headers, producer)
            if seq is not None and error.first <= seq <= error.last:
                found.setdefault(seq, row)
        size, stop = 2 * size, begin
    log.leave(partition)
    return found
