"""Pins on Kafka: metadata that counts only over what its process had read, by the log's order.

A topic compares nothing. So a record of a pin says over which entry it was made, and every reader decides as it reads:
the first pin over an entry counts, a later one over the same entry is late. What was late may be all that compaction
leaves of a key, so who writes to a job's metadata next writes the entry again that counts. That record is over the late
ones, too: it counts where compaction has left one of them and not what it was late for. A pin of several entries counts
by its first.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping

from grete.ports import ExternalRecord, LogRow
from grete.protocol.frames import decode_headers, encode_headers
from grete.protocol.ids import TopicPartition

_PIN, _OVER = "grete-pin", "grete-over"  # headers: which pin a record is of, and digests of what it may be over
_DIGEST_BYTES = 32  # of SHA-256

Noted = bytes | None  # None: it is not there


class Pins:
    """Decides, record by record, which pins count. ``late``: by key, what has come too late since the last one did."""

    def __init__(self, entries: Mapping[str, bytes]) -> None:
        """``entries`` is what counts so far, as the caller keeps it."""
        self.late: dict[str, list[Noted]] = {}
        self._entries = entries
        self._first: dict[bytes, bool] = {}  # pin → whether it counts
        self._seen = set[str]()  # of an entry whose record is compacted away nothing can be said

    def count(self, key: str, row: LogRow) -> bool:
        """Tell whether a record counts. Raises DecodeError."""
        headers = dict(decode_headers(row.headers)) if row.headers else {}
        pin, counts = headers.get(_PIN), True
        if pin is not None:
            over, now = headers.get(_OVER) or b"", _digest(self._entries.get(key))
            digests = (over[at : at + _DIGEST_BYTES] for at in range(0, len(over), _DIGEST_BYTES))
            counts = self._first.setdefault(pin, key not in self._seen or now in digests)
        self._seen.add(key)
        if counts:
            self.late.pop(key, None)
        else:
            self.late.setdefault(key, []).append(row.value)
        return counts


def pinning(at: TopicPartition, meta: Mapping[str, Noted], over: Iterable[Noted]) -> list[ExternalRecord]:
    """Return the records of a pin; the first of them counts over any of these entries."""
    headers = encode_headers([(_PIN, os.urandom(16)), (_OVER, b"".join(map(_digest, over)))])
    return [ExternalRecord(at, key.encode(), entry, 0, headers) for key, entry in meta.items()]


def _digest(entry: Noted) -> bytes:
    return bytes(_DIGEST_BYTES) if entry is None else hashlib.sha256(entry).digest()
