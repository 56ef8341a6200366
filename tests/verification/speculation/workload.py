"""The code of the simulated stages: what it makes depends on the order of all that it has seen."""

from collections.abc import Mapping
from zlib import crc32

from framework.core.speculative.messages import OUTSIDE, Records
from framework.core.speculative.versions import SettledView, View


def parse(row: bytes, tasks: int, grain: int) -> list[tuple[int, Records]]:
    """Return the bundles of a row, a list of keys: at most ``grain`` records each, in the partition of their keys."""
    bundles: list[tuple[int, Records]] = []
    for task in range(tasks):
        records = [(key, row) for key in row.split() if crc32(key) % tasks == task]
        bundles += [(task, tuple(records[at : at + grain])) for at in range(0, len(records), grain)]
    return bundles


def run(view: View | SettledView, records: Records, tasks: int, keys: int, *, last: bool) -> Mapping[int, Records]:
    """Hash each record with what its key holds; what comes out goes to where the hash says, if at all."""
    made: dict[int, list[tuple[bytes, bytes]]] = {}
    for key, value in records:
        before = view.get(key) or b""
        state = crc32(value, crc32(before, crc32(key)))
        kind = state % 8
        if kind == 0:
            view.put(key, None)  # and the next record begins with nothing
        elif kind != 1:  # 1: a record that only reads
            view.put(key, b"%d" % state)
        if kind == 2:
            view.put(b"other%d" % (state % keys), b"%d" % state)  # a write without a read
        if kind == 3:
            state ^= len(view.get(b"other%d" % (state // 8 % keys)) or b"")
        if kind == 4:
            continue  # nothing comes of it
        out = b"k%d" % (state // 8 % keys)
        made.setdefault(OUTSIDE if last else crc32(out) % tasks, []).append((out, b"%d" % state))
    return {output: tuple(made_there) for output, made_there in made.items()}
