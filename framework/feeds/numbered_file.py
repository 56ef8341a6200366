"""The numbered bytes of a file: metadata that is written before the first record of its lines.

A feed that was killed reads the file from its beginning again. If the bytes that it had numbered are still what they
were, its lines get the numbers that they had, whether their records have been written or not. If they are not, another
session begins: a line that was changed is a new record.
"""

import hashlib
import os
from collections.abc import Iterator

import msgspec

from grete.core.changelog.damage import entry
from grete.errors import ConfigError
from grete.feeds.numbers import new_session
from grete.ports import JobMetadata

READ_BYTES = 1 << 20  # at once, of which a digest is made
LINE_BYTES_MAX = 1 << 20  # Kafka's default limit on a message is about as much


class NumberedBytes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Metadata of a file. ``reading``: what else the numbers depend on."""

    session: str
    size: int  # bytes that are numbered
    digest: bytes  # of them
    reading: str


class NumberedFile:
    """The numbered bytes of one open file. ``read`` gives them, and numbers more when they end."""

    def __init__(self, log: JobMetadata, key: str, handle: int, reading: str) -> None:
        """Look for what an earlier feed has numbered, under ``key``. The file is open at its beginning."""
        self._log, self._key, self._handle = log, key, handle
        before = log.meta_get(key)
        with entry(key):
            self._before = None if before is None else msgspec.msgpack.decode(before, type=NumberedBytes)
        self._numbered = NumberedBytes(new_session(), 0, b"", reading)
        self._digest = hashlib.blake2b(digest_size=16)  # of the numbered bytes
        self._read_digest = hashlib.blake2b(digest_size=16)  # of those that were read, which must be the same
        self._read_bytes = 0

    @property
    def session(self) -> str:
        """The session of the file's lines, once something is numbered."""
        return self._numbered.session

    def extend(self, *, all_: bool = False) -> Iterator[None]:
        """Number the whole lines that the file holds by now, piece by piece; ``all_``: and what is behind them."""
        before, self._before = self._before, None
        numbered, size = self._numbered, self._numbered.size
        session = numbered.session
        if before is not None and before.reading == numbered.reading:
            last = b""
            while size < before.size and (piece := os.pread(self._handle, min(READ_BYTES, before.size - size), size)):
                self._digest.update(piece)
                size, last = size + len(piece), piece[-1:]
                yield
            ended = last in {b"", b"\n"} or os.pread(self._handle, 1, size) in {b"", b"\n"}  # no line has become longer
            if (size, self._digest.digest()) == (before.size, before.digest) and ended:
                session = before.session
        rest = b""  # a line whose end is still to come
        while piece := os.pread(self._handle, READ_BYTES, size + len(rest)):
            piece = rest + piece
            end = piece.rfind(b"\n") + 1
            if not end and len(piece) > LINE_BYTES_MAX:
                end = len(piece)  # its reader refuses it
            self._digest.update(piece[:end])
            size, rest = size + end, piece[end:]
            yield
        if all_:
            self._digest.update(rest)
            size += len(rest)
        self._numbered = NumberedBytes(session, size, self._digest.digest(), numbered.reading)
        if self._numbered not in {numbered, before}:
            self._log.produce_with_meta([], {self._key: msgspec.msgpack.encode(self._numbered)})

    def read(self, handle: int, size: int) -> bytes:
        """Read on; nothing at the end of the file. Raises ConfigError: the file was changed after it was numbered."""
        for all_ in (False, True):
            if self._read_bytes == self._numbered.size:
                self._check()
                for _ in self.extend(all_=all_):
                    pass
        left = self._numbered.size - self._read_bytes
        piece = os.read(handle, min(size, left))
        self._read_digest.update(piece)
        self._read_bytes += len(piece)
        if left and not piece:
            self._check()
        return piece

    def _check(self) -> None:
        if self._read_digest.digest() != self._digest.digest():
            self._log.produce_with_meta([], {self._key: None})
            raise ConfigError(
                "the file was changed while it was fed: run the command again; all of its lines count as new then"
            )
