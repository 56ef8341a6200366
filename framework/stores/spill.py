"""Storage of early frames that exceed the memory bound (A4, A5): a file, or a list for tests.

A spill is a cache of the running process: nothing in it is read after a restart, so nothing is synced.
"""

import contextlib
import errno
import os
import struct
import zlib
from pathlib import Path

from grete.errors import StoreCorrupted, TransientError
from grete.stores.store_directory import make_private

_SIZE = struct.Struct(">I")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileSpill:
    """An append-only file ``early.spill`` in a directory: INT32 size + payload each; a place is (offset, crc32).

    The checksum lives in the place, not in the file: so a place that outlived a ``clear`` is found out as well.
    """

    def __init__(self, directory: Path) -> None:
        """Start empty. Raises ConfigError for an unusable directory, TransientError if the file cannot be made."""
        self._path = directory / "early.spill"
        self._end = 0
        make_private(directory)
        try:
            # A file of its own, not a truncated one: a dying predecessor may still write into what it has open.
            self._path.unlink(missing_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TransientError(f"cannot make the spill file {self._path}: {error}") from error

    def put(self, payload: bytes) -> tuple[int, int]:
        """Append a payload. Raises TransientError if the disk is full; the spill is then as it was before."""
        place = (self._end, zlib.crc32(payload))
        written = self._end
        rest = memoryview(_SIZE.pack(len(payload)) + payload)
        try:
            while rest:
                count = os.pwrite(self._file, rest, written)
                written += count
                rest = rest[count:]
        except OSError as error:
            what = "the disk is full: free space" if error.errno in _FULL else "the write failed: look at the disk"
            raise TransientError(
                f"{self._path}: {what}, or lower setting early_bytes_max ({len(payload)} bytes at offset "
                f"{self._end}): {error}",
                setting="early_bytes_max",
            ) from error
        self._end = written
        return place

    def get(self, place: tuple[int, int]) -> bytes:
        """Read a payload back.

        Raises StoreCorrupted if it is not what was written, TransientError if it cannot be read.
        """
        offset, crc = place
        try:
            head = os.pread(self._file, _SIZE.size, offset) if 0 <= offset <= self._end - _SIZE.size else b""
            size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else -1
            fits = 0 <= size <= self._end - offset - _SIZE.size
            payload = self._read(offset + _SIZE.size, size) if fits else None
        except OSError as error:
            raise TransientError(f"cannot read the spill file {self._path} at {offset}: {error}") from error
        if payload is None or zlib.crc32(payload) != crc:
            raise StoreCorrupted(
                f"{self._path}: no payload with crc32 {crc:#010x} at {offset} (size there {size}, end {self._end}): "
                "the file was changed, or the place is from before a clear",
            )
        return payload

    def _read(self, offset: int, size: int) -> bytes:
        parts = []
        while size > 0 and (part := os.pread(self._file, size, offset)):  # one call returns at most 2 GiB
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def clear(self) -> None:
        """Forget everything and give the disk space back. Raises TransientError if the disk does not answer."""
        self._end = 0
        try:
            os.ftruncate(self._file, 0)
        except OSError as error:
            raise TransientError(f"cannot empty the spill file {self._path}: {error}") from error

    def close(self) -> None:
        """Release and delete the file."""
        os.close(self._file)
        with contextlib.suppress(OSError):  # it is emptied at the next start anyway
            self._path.unlink(missing_ok=True)


class MemorySpill:
    """The same in memory, for tests and the simulator. A place is (number, crc32)."""

    def __init__(self) -> None:
        """Start empty."""
        self._payloads: list[bytes] = []

    def put(self, payload: bytes) -> tuple[int, int]:
        """Keep a payload."""
        self._payloads.append(payload)
        return len(self._payloads) - 1, zlib.crc32(payload)

    def get(self, place: tuple[int, int]) -> bytes:
        """Return a payload. Raises StoreCorrupted for a place that is not in use, or is in use by another payload."""
        number, crc = place
        payload = self._payloads[number] if 0 <= number < len(self._payloads) else None
        if payload is None or zlib.crc32(payload) != crc:
            raise StoreCorrupted(f"no payload with crc32 {crc:#010x} at place {number} of {len(self._payloads)}")
        return payload

    def clear(self) -> None:
        """Forget everything."""
        self._payloads.clear()

    def close(self) -> None:
        """Release everything."""
        self.clear()
