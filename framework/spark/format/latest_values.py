"""The newest value of each key out of data messages, column by column: no Python object for an entry.

What the fold of a changelog hands over is verified already (count and digest, R1), so the bytes are cut as they are.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from grete.core.changelog.changelog_fold import Segment
from grete.protocol.changelog import CHANGELOG_HEADER_SIZE

_PREFIX = 9  # flags, count, crc32 (protocol/README.md, "Data")
_NONE = pa.array([], pa.large_binary())
_TIDY_ROWS = 1 << 20  # at least this many before overwritten values are dropped


class NewestEntries:
    """The entries of one store. ``numbers``: of the segments that wrote them, in the order they were fed."""

    def __init__(self, store: int) -> None:
        self._store = store
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._numbers: list[Any] = []
        self._rows = self._tidy = 0

    def feed(self, segments: Iterable[Segment]) -> None:
        """Take what valid commits close, oldest first."""
        for number, segment in enumerate(segments):
            for message in segment.messages:
                self._message(message, number)
            if self._rows > max(_TIDY_ROWS, 2 * self._tidy):
                self._compact()

    def columns(self) -> tuple[Any, Any, Any]:
        """Return (keys, values, numbers) of what is there now: two large binary arrays, one of int64."""
        self._compact()
        if not self._keys:
            return pa.array([], pa.large_binary()), pa.array([], pa.large_binary()), pa.array([], pa.int64())
        columns = self._keys[0], self._values[0], pa.array(self._numbers[0])
        if not self._values[0].null_count:
            return columns
        there = self._values[0].is_valid()
        keys, values, numbers = (column.filter(there) for column in columns)
        return keys, values, numbers

    def _message(self, message: bytes, number: int) -> None:
        is_reset, keys, values = entries_of(message, self._store)
        if is_reset:
            self._keys, self._values, self._numbers, self._rows, self._tidy = [], [], [], 0, 0
        if len(keys):
            self._keys.append(keys)
            self._values.append(values)
            self._numbers.append(np.full(len(keys), number, np.int64))
            self._rows += len(keys)

    def _compact(self) -> None:
        """Keep the last entry of each key."""
        if not self._keys:
            return
        keys, values = pa.concat_arrays(self._keys), pa.concat_arrays(self._values)
        self._rows = self._tidy = len(keys)
        codes = keys.dictionary_encode()
        if len(codes.dictionary) == len(keys):  # none is there twice
            self._keys, self._values, self._numbers = [keys], [values], [np.concatenate(self._numbers)]
            return
        last = np.zeros(len(codes.dictionary), np.int64)
        last[codes.indices.to_numpy()] = np.arange(len(keys))  # of equal codes the last one stays
        kept = pa.array(np.sort(last))
        self._keys, self._values = [keys.take(kept)], [values.take(kept)]
        self._numbers = [np.concatenate(self._numbers)[kept.to_numpy()]]
        self._rows = self._tidy = len(kept)


def entries_of(message: bytes, store: int) -> tuple[bool, Any, Any]:
    """Return (whether it empties the store first, keys, values) of a data message: two large binary arrays."""
    resets, stores, at = _stores(message)
    is_reset = store in resets
    ours = stores == store
    if not ours.any():
        return is_reset, _NONE, _NONE
    keys, values = _cells(message, at, len(stores))
    if not ours.all():
        keys, values = keys.filter(pa.array(ours)), values.filter(pa.array(ours))
    return is_reset, keys, values


def columns_of(message: bytes) -> tuple[Any, Any, Any, Any]:
    """Return (stores that it empties first, stores, keys, values) of a data message: two of numbers, two as above."""
    resets, stores, at = _stores(message)
    return resets, stores, *_cells(message, at, len(stores))


def _stores(message: bytes) -> tuple[Any, Any, int]:
    """Return (stores that a data message empties first, stores of its entries, where these begin)."""
    at = CHANGELOG_HEADER_SIZE
    flags, count = message[at], int.from_bytes(message[at + 1 : at + 5], "big")
    at += _PREFIX
    resets = np.zeros(0, np.int16)
    if flags:
        resets = np.frombuffer(message, ">i2", int.from_bytes(message[at : at + 2], "big"), at + 2)
        at += 2 + 2 * len(resets)
    return resets, np.frombuffer(message, ">i2", count, at), at


def _cells(message: bytes, at: int, count: int) -> tuple[Any, Any]:
    key_sizes = np.frombuffer(message, ">i4", count, at + 2 * count)
    value_sizes = np.frombuffer(message, ">i4", count, at + 6 * count)
    at += 10 * count
    data = pa.py_buffer(message)
    return _cut(data, at, key_sizes), _cut(data, at + int(key_sizes.sum(dtype=np.int64)), value_sizes)


def _cut(data: Any, at: int, sizes: Any) -> Any:
    """Return the large binary array of consecutive cells; a size of -1 is a null."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    nulls = sizes < 0
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes()) if nulls.any() else None
    buffers = [valid, pa.py_buffer(offsets), data.slice(at, int(offsets[-1]))]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)
