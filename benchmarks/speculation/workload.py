"""Documents of keyed records through stages that count each key: the order decides what each record says."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random
from zlib import crc32

from framework.core.speculative.messages import OUTSIDE, Records
from framework.core.speculative.versions import SettledView, View


@dataclass(frozen=True)
class Load:
    """``documents``: a second, over all sources. ``code_us``: CPU time of the task's code a record."""

    name: str
    documents: int
    records: int
    keys: int
    zipf: bool
    code_us: float

    def document(self, random: Random) -> bytes:
        """Return a document: its keys."""
        if self.zipf:
            total = _weights(self.keys)
            return b" ".join(b"%d" % bisect_left(total, random.random() * total[-1]) for _ in range(self.records))
        return b" ".join(b"%d" % random.randrange(self.keys) for _ in range(self.records))


LOADS = {
    "costly": Load("costly", 40, 1, 20_000, False, 5_000),  # 20 % of a core a task; keys hardly meet
    "hot": Load("hot", 40, 1, 200, True, 5_000),  # the same, and keys meet
    "busy": Load("busy", 90, 1, 200, True, 5_000),  # 45 % of a core a task, of the busiest 80 %
    "chain": Load("chain", 100, 1, 8, False, 1_000),  # each record meets those before it
    "words": Load("words", 50, 24, 5_000, True, 6.5),  # the inverted index: 0.3 ms for 46 records
    "light": Load("light", 40, 1, 20_000, False, 100),
    "dense": Load("dense", 400, 1, 20_000, False, 100),  # something is always on its way
}


@lru_cache
def _weights(keys: int) -> list[float]:
    return list(accumulate(1 / rank for rank in range(1, keys + 1)))


def parse(row: bytes, tasks: int) -> Sequence[tuple[int, Records]]:
    """Return the bundle of a document for each task."""
    made: dict[int, list[tuple[bytes, bytes]]] = {}
    for key in row.split():
        made.setdefault(crc32(key) % tasks, []).append((key, b""))
    return [(task, tuple(made[task])) for task in sorted(made)]


def count(view: View | SettledView, records: Records, stage: int, tasks: int, *, last: bool) -> Mapping[int, Records]:
    """Count each key; the next stage has other keys for the same records, and hears the count."""
    made: dict[int, list[tuple[bytes, bytes]]] = {}
    for key, value in records:
        number = int(view.get(key) or 0) + 1
        view.put(key, b"%d" % number)
        out = b"%d" % (crc32(key, stage) % 20_000)
        made.setdefault(OUTSIDE if last else crc32(out) % tasks, []).append((out, b"%d %.40b" % (number, value)))
    return {output: tuple(made_there) for output, made_there in made.items()}
