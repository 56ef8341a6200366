"""A check that RocksDB leaves out: that its MANIFEST is whole.

RocksDB verifies the checksum of each record, but takes a record that seems to go on beyond the end of the file for a
torn tail, drops it and opens an older state without a word. One flipped bit in a length is enough. Older files are then
combined with a newer log, and the changelog position can be ahead of the data. After other flips, listing the column
families never returns.

Not found is a file that was cut exactly between two records. A kill cannot do that, nor a power loss on a disk that
keeps what was synced: RocksDB syncs each record before it goes on.
"""

import struct
from pathlib import Path

from grete.errors import StoreCorrupted

_BLOCK_BYTES = 32_768  # of RocksDB's log format
_HEADER = struct.Struct("<IHB")  # crc32c, length, type
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAY_FOLLOW = {_FULL: (_FULL, _FIRST), _LAST: (_FULL, _FIRST), _FIRST: (_MIDDLE, _LAST), _MIDDLE: (_MIDDLE, _LAST)}


def check_manifest(directory: Path) -> None:
    """Raise StoreCorrupted unless records fill the MANIFEST that CURRENT names exactly; contents RocksDB verifies.

    A kill in the midst of an append may leave a torn tail as well; that is rare, and a restore is the safe answer.
    """
    try:
        current = (directory / "CURRENT").read_bytes()
        file = directory / current.decode("ascii").removesuffix("\n")
        data = file.read_bytes() if file.name.startswith("MANIFEST-") else b""
    except (OSError, ValueError) as error:
        raise StoreCorrupted(f"cannot read what {directory}/CURRENT names: {error}: wipe it and restore") from error
    at, previous = 0, _FULL
    while at < len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEADER.size:  # padding: a header is never split
            at += left
            continue
        if at + _HEADER.size > len(data):
            break
        _, length, kind = _HEADER.unpack_from(data, at)
        end = at + _HEADER.size + length
        if kind not in _MAY_FOLLOW[previous] or _HEADER.size + length > left or end > len(data):
            break
        at, previous = end, kind
    if not data or at < len(data) or previous not in (_FULL, _LAST):
        raise StoreCorrupted(
            f"{file} ({len(data)} bytes) is damaged or torn, no whole record at {at}: wipe it and restore"
        )
