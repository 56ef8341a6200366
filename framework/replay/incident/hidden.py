"""Replacement of keys, values and headers in an incident without values: lengths, and digests under a lost key."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping

from grete.core.changelog.damage import unreadable
from grete.ports import LogRow
from grete.protocol.changelog import decode_changelog_header
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import frame_count
from grete.replay.incident.file import encode

_DIGEST = 8  # bytes: enough to tell two values of one file apart

Cell = tuple[int, str] | None  # length, digest


class Hider:
    """Hides the data of one file. The same bytes have the same digest in it; who has guessed bytes cannot check it."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)  # of this file, and kept nowhere

    def cell(self, data: bytes | None) -> Cell:
        """Return the stand-in for a key, a value or the headers of a record."""
        if data is None:
            return None
        return len(data), hashlib.blake2b(data, digest_size=_DIGEST, key=self._key).hexdigest()

    def rows(self, rows: Iterable[LogRow]) -> bytes:
        """Return a part: (offset, append time, timestamp, key, value, headers) of rows from outside."""
        return encode([(*row[:3], self.cell(row.key), self.cell(row.value), self.cell(row.headers)) for row in rows])

    def messages(self, rows: Iterable[LogRow], *, stream: bool) -> bytes:
        """Return a part: (offset, append time, what it is, length) of messages of a stream or a changelog."""
        return encode(
            [(*row[:2], (_of_stream if stream else _of_changelog)(row), len(row.value or b"")) for row in rows]
        )

    def state(self, state: Mapping[tuple[int, bytes], bytes]) -> bytes:
        """Return a part: (store id, key, value)."""
        return encode([(store, self.cell(key), self.cell(value)) for (store, key), value in state.items()])


def _of_stream(row: LogRow) -> list[object]:
    try:
        kind, *fields = decode_header(row.value or b"")
        count = frame_count(row.value or b"") if kind is MessageType.FRAME else 0
    except DecodeError as error:
        return [unreadable(error)]
    return [kind.name, *fields, count]


def _of_changelog(row: LogRow) -> list[object]:
    try:
        kind, *fields = decode_changelog_header(row.value or b"")
    except DecodeError as error:
        return [unreadable(error)]
    return [kind.name, *fields]
