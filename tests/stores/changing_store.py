"""A process that writes to a RocksDB without end: a script.

changing_store.py DIRECTORY [wipes]: write N holds N for a hundred keys, and is at changelog position N. Bulk loads come
in between, or wipes, behind which it goes on with N.
"""

import sys
from itertools import count
from pathlib import Path

from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

NAMES = {0: "counts", 1: "words"}
KEYS, EACH, LOAD_EVERY, WIPE_EVERY = 5_000, 100, 200, 50


def keys_of(number: int) -> list[bytes]:
    """Return the keys that write ``number`` changes."""
    return [b"%05d" % ((number * 97 + place * 31) % KEYS) for place in range(EACH)]


def main(directory: Path, *, wipes: bool) -> None:
    """Write until killed."""
    store = RocksStore(directory, NAMES, RocksMemory(8 << 20))
    for number in count(1):
        if wipes and number % WIPE_EVERY == 0:
            store.wipe()
        if number % LOAD_EVERY == 0:
            store.load(1, [b"loaded"], [b"%d" % number])
            store.flush()
        store.write([(0, key, b"%08d" % number * 20) for key in keys_of(number)], b"%d" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), wipes=len(sys.argv) > 2)
