"""Kafka's requests as far as the late end needs them: which one it is, whose transaction, which topics."""

import struct
from typing import NamedTuple

PRODUCE, INIT, END = 0, 22, 26  # api keys
_FLEXIBLE = {PRODUCE: 9, INIT: 2, END: 3}  # from this version on lengths are varints
_NAMES_UP_TO = 12  # a Produce of a later version names its topics by their ids


class Request(NamedTuple):
    """A request. ``transactional_id`` is "" and ``topics`` empty where it has none, or names none."""

    api: int
    version: int
    correlation: int
    transactional_id: str = ""
    topics: tuple[str, ...] = ()


def decode(body: bytes) -> Request:
    """Return the parsed request, from its bytes behind the length."""
    api, version, correlation = struct.unpack_from(">hhi", body)
    if api not in _FLEXIBLE:
        return Request(api, version, correlation)
    fields = _Fields(body, 8, flexible=False)
    fields.text()  # the client's id: its length is never a varint
    fields.flexible = version >= _FLEXIBLE[api]
    if fields.flexible:
        fields.tags()
    transactional_id = fields.text()
    if api != PRODUCE or version > _NAMES_UP_TO:
        return Request(api, version, correlation, transactional_id)
    fields.at += 2 + 4  # acks, the time-out
    topics = tuple(_topic(fields) for _ in range(fields.length()))
    return Request(api, version, correlation, transactional_id, topics)


def end_code(request: Request, answer: bytes) -> int:
    """Return the error code in the answer to the end of a transaction, from its bytes behind the length."""
    at = 4 + (request.version >= _FLEXIBLE[END]) + 4  # the correlation id, tags, the throttle time
    code: int = struct.unpack_from(">h", answer, at)[0]
    return code


def _topic(fields: "_Fields") -> str:
    """Read a topic of a Produce with its partitions; return its name."""
    name = fields.text()
    for _ in range(fields.length()):
        fields.at += 4  # the partition
        size = fields.length()
        fields.at += size
        if fields.flexible:
            fields.tags()
    if fields.flexible:
        fields.tags()
    return name


class _Fields:
    """Reads fields one after the other."""

    def __init__(self, body: bytes, at: int, *, flexible: bool) -> None:
        self._body, self.at, self.flexible = body, at, flexible

    def text(self) -> str:
        """Read a text; none is ""."""
        size = self._varint() - 1 if self.flexible else self._number(">h", 2)
        found = self._body[self.at : self.at + max(size, 0)]
        self.at += len(found)
        return found.decode(errors="replace")

    def length(self) -> int:
        """Read how many bytes or elements follow; none is 0."""
        return max(self._varint() - 1 if self.flexible else self._number(">i", 4), 0)

    def tags(self) -> None:
        """Pass tagged fields."""
        for _ in range(self._varint()):
            self._varint()
            size = self._varint()
            self.at += size

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._body[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _number(self, form: str, size: int) -> int:
        value: int = struct.unpack_from(form, self._body, self.at)[0]
        self.at += size
        return value
