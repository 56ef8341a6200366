"""Changes one committed entry in an embedded log, as a broken disk would not: with all digests right."""

import sqlite3
import zlib
from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.logs.embedded.schema import OFFSET_BITS, crc_of
from grete.logs.partition_reader import rows
from grete.ports import JobLog
from grete.protocol.changelog import decode_changelog_header, decode_data, encode_data
from grete.protocol.commit import encode_commit
from grete.protocol.ids import TopicPartition

Entry = tuple[int, bytes]  # store id, key


def damage(log: JobLog, file: Path, changelog: TopicPartition, keys: Collection[Entry]) -> Entry | None:
    """Flip a bit in the value of one of these (store, key), the one written last; return it. None: there is none."""
    start, end = log.bounds(changelog)
    fold, segments = ChangelogFold(changelog, start), list[Segment]()
    values = {row.offset: row.value or b"" for row in rows(log, changelog, start, end)}
    for offset, value in values.items():
        segment = fold.feed(offset, value)
        if segment is not None:
            segments.append(segment)
    last: dict[Entry, tuple[Segment, int, int, bytes | None]] = {}
    for segment in segments:
        for number, message in enumerate(segment.messages):
            data = decode_data(message)
            for store in data.reset_stores or ():
                last = {entry: place for entry, place in last.items() if entry[0] != store}
            for index, entry in enumerate(zip(data.stores, data.keys, strict=True)):
                last.pop(entry, None)  # the entry written last is to be the last one
                last[entry] = segment, number, index, data.values[index]
    found = next(((e, place) for e, place in reversed(last.items()) if e in keys and place[3]), None)
    if found is None:
        return None
    entry, (segment, number, index, old) = found
    assert old is not None
    changed = _with(segment.messages[number], index, old[:-1] + bytes([old[-1] ^ 1]))
    messages = [*segment.messages[:number], changed, *segment.messages[number + 1 :]]
    digest = 0
    for message in messages:
        digest = zlib.crc32(message, digest)
    commit = encode_commit(decode_changelog_header(values[segment.offset]), replace(segment.commit, data_digest=digest))
    before = {value: offset for offset, value in values.items()}
    _write(file, changelog, {before[segment.messages[number]]: changed, segment.offset: commit})
    return entry


def _with(message: bytes, index: int, value: bytes) -> bytes:
    data = decode_data(message)
    values = [*data.values[:index], value, *data.values[index + 1 :]]
    return encode_data(decode_changelog_header(message), data.stores, data.keys, values, data.reset_stores)


def _write(file: Path, place: TopicPartition, messages: dict[int, bytes]) -> None:
    with sqlite3.connect(file) as log:
        (number,) = log.execute("SELECT id FROM partition WHERE topic = ? AND partition = ?", place).fetchone()
        for offset, value in messages.items():
            crc = crc_of(value, None, None)
            log.execute(
                "UPDATE message SET value = ?, crc = ? WHERE id = ?", (value, crc, number << OFFSET_BITS | offset)
            )
    log.close()
