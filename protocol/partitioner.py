"""Grete's partitioner is that of Kafka's Java producer (murmur2). librdkafka's default is another one (CRC32)."""

import struct
import zlib
from functools import lru_cache

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def murmur2(key: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of the key, signed as in Java."""
    size = len(key)
    h = _SEED ^ size
    words = size >> 2
    for word in struct.unpack_from(f"<{words}I", key):
        mixed = word * _M & _MASK
        h = (h * _M ^ (mixed ^ mixed >> 24) * _M) & _MASK  # the low bits of products and xors need no mask in between
    if size & 3:
        h = (h ^ int.from_bytes(key[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & _SIGN else h


@lru_cache(maxsize=1 << 14)  # keys repeat; about 3 MB of short keys
def partition_of(key: bytes | None, partitions: int) -> int:
    """Return (murmur2(key) & 0x7fffffff) % partitions. Raises ValueError on a null key: the caller chooses."""
    if key is None:
        raise ValueError("a null key has no partition: choose one")
    if partitions < 1:
        raise ValueError(f"partitions = {partitions}: must be at least 1")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition_of(key: bytes, partitions: int) -> int:
    """Return crc32(key) % partitions: where librdkafka puts a key by default, and with it Python, Go and .NET clients.

    An empty key has no partition there: librdkafka takes one at random (``consistent_random``).
    """
    return zlib.crc32(key) % partitions
