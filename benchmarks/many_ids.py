"""Many ids in a small memory: ``python -m benchmarks.many_ids [ids=10000000] [rocksdb_bytes=16777216]``.

The deduplication of ``ById`` over the store of a worker, with a budget of memory (setting rocksdb_bytes) that is far
below the ids; a checkpoint every 20,000 records. Prints a line of JSON for each tenth of the ids: the cost of a new id
(µs), how many reads of files RocksDB's Bloom filters have spared, and how many they have let through for nothing (their
false positives). At last a sample of ids comes again: each must be known, and each of as many others must be new.
"""

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rocksdict import Options

from grete.api.record import Record
from grete.api.topics.deduplicate import ById
from grete.execution.task_code.deduplication import Deduplicator
from grete.execution.timing.floors import Floors
from grete.execution.timing.timers import TimerQueue
from grete.settings import MiB
from grete.stores.overlay.overlay import Overlay
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore

CHECKPOINT = 20_000  # records
HORIZON_MS = 1 << 50  # none expires
SAMPLE = 20_000
TICKERS = (
    "rocksdb.bloom.filter.useful",  # reads of a file spared
    "rocksdb.bloom.filter.full.positive",  # files read
    "rocksdb.bloom.filter.full.true.positive",  # that had the key
)
IDS, META, TIMERS = 1, 2, 3


class CountingMemory(RocksMemory):
    """A budget whose databases count what they do."""

    def options(self) -> Options:
        """Return the options, the same ones each time: a database counts in those that it was opened with."""
        options = super().options()
        options.enable_statistics()
        self.counting = getattr(self, "counting", options)
        return options


def record_of(number: int) -> Record[Any, Any]:
    """Return a record whose id is a 16-byte number like a UUID."""
    identity = random.Random(number).randbytes(16)
    return Record(key=None, value=identity, timestamp=number, headers=(), topic="t", partition=0, offset=number)


def tickers(options: Options) -> dict[str, int]:
    """Return the counts of RocksDB, by name."""
    found = {}
    for line in (options.get_statistics() or "").splitlines():
        name, counted, value = line.partition(" COUNT : ")
        if counted and name in TICKERS:
            found[name.strip()] = int(value)
    return found


def run(ids: int, rocksdb_bytes: int, folder: Path) -> Iterator[dict[str, object]]:
    """Yield the figures of each measurement."""
    memory = CountingMemory(rocksdb_bytes)
    store = RocksStore(folder / "store", {IDS: "seen-t", META: "_meta", TIMERS: "_timers"}, memory)
    overlay = Overlay(
        store, (IDS, META, TIMERS), uncommitted_state_bytes_max=64 * MiB, read_cache_bytes_max=rocksdb_bytes // 4
    )
    seen = Deduplicator(
        ById(lambda record: record.value, HORIZON_MS), "seen-t", overlay.store(IDS), overlay.store(META),
        TimerQueue(overlay.store(TIMERS)), Floors(overlay.store(META)),
    )  # fmt: skip

    def checkpoint() -> None:
        overlay.freeze()
        while not overlay.apply_chunk(b"position"):
            pass

    counted, began_s, cpu_s = tickers(memory.counting), time.perf_counter(), time.process_time()
    part = ids // 10
    for number in range(ids):
        assert seen.is_new(record_of(number))
        if number % CHECKPOINT == CHECKPOINT - 1:
            checkpoint()
        if number % part == part - 1:
            now, counts = time.perf_counter(), tickers(memory.counting)
            more = {name: count - counted.get(name, 0) for name, count in counts.items()}
            yield {
                "ids": number + 1,
                "us_per_new_id": round((now - began_s) / part * 1e6, 1),
                "cpu_us_per_new_id": round((time.process_time() - cpu_s) / part * 1e6, 1),
                "disk_bytes": sum(path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file()),
                "rocksdb_memory_bytes": memory.used(),
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                **more,
            }
            counted, began_s, cpu_s = counts, time.perf_counter(), time.process_time()
    draw = random.Random(1)
    began_s = time.perf_counter()
    known = sum(not seen.is_new(record_of(draw.randrange(ids))) for _ in range(SAMPLE))
    known_s, before = time.perf_counter() - began_s, tickers(memory.counting)
    fresh = sum(seen.is_new(record_of(ids + number)) for number in range(SAMPLE))
    after = tickers(memory.counting)
    yield {
        "sample": SAMPLE, "known": known, "us_per_known_id": round(known_s / SAMPLE * 1e6, 1), "new": fresh,
        **{name: count - before.get(name, 0) for name, count in after.items()},
    }  # fmt: skip
    store.close()


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with tempfile.TemporaryDirectory() as place:
        for line in run(int(given.get("ids", 10_000_000)), int(given.get("rocksdb_bytes", 16 << 20)), Path(place)):
            print(json.dumps(line), flush=True)
