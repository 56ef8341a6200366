"""Kafka's partitioner over a column: what ``grete.protocol.partitioner`` says of one key, of many at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)


def partitions_of(keys: Any, partitions: int, placing: Callable[[bytes], bytes] | None = None) -> Any:
    """Return the int32 Arrow array of the partitions of a binary array of keys; null keys give null.

    ``placing``: takes the part of a key that places it; None: the whole key does.
    """
    if placing is not None:
        keys = pa.array([None if key is None else placing(key) for key in keys.to_pylist()], pa.large_binary())
    keys = keys.cast(pa.large_binary())
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64, len(keys) + 1, 8 * keys.offset)
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    hashes = _murmur2(raw, starts[:-1], np.diff(starts))
    chosen = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)
    return pa.array(chosen, pa.int32(), mask=np.asarray(keys.is_null()))


def _murmur2(raw: Any, starts: Any, sizes: Any) -> Any:
    """Return the uint32 hashes of slices of ``raw``: word by word over all keys that still have one."""
    padded = np.concatenate([raw, np.zeros(4, np.uint8)])
    with np.errstate(over="ignore"):
        hashes = _SEED ^ sizes.astype(np.uint32)
        words = sizes >> 2
        for word in range(int(words.max(initial=0))):
            has = np.flatnonzero(words > word)
            mixed = _word(padded, starts[has] + 4 * word) * _M
            hashes[has] = hashes[has] * _M ^ (mixed ^ mixed >> np.uint32(24)) * _M
        rest = np.flatnonzero(sizes & 3)
        kept = np.uint32(0xFFFFFFFF) >> (np.uint32(32) - np.uint32(8) * (sizes[rest] & 3).astype(np.uint32))
        hashes[rest] = (hashes[rest] ^ (_word(padded, starts[rest] + (sizes[rest] & ~3)) & kept)) * _M
        hashes = (hashes ^ hashes >> np.uint32(13)) * _M
        return hashes ^ hashes >> np.uint32(15)


def _word(padded: Any, at: Any) -> Any:
    """Return the 4 bytes at each place as little-endian numbers."""
    word = padded[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= padded[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
