"""Joins on Kafka, each kind beside the peers: ``python -m benchmarks.joins [--messages N] [--rounds N]``.

Two topics are joined by key. Each program tells each pair by the numbers of its two records; the pairs must be exactly
those of a plain computation, or the run does not count. WRITE=1 puts the table into docs/results/joins.md.
"""

import argparse
import json
import os
import random
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.beside import AFTER_MS, BESIDE, GRETE, KEYS, STEP_MS, Closing, Running, fill, report, run
from benchmarks.joining import AFTER_MS as REACH_MS
from benchmarks.joining import BEFORE_MS, DIGITS, TASKS, input_topics, told
from benchmarks.on_kafka import Result, Watcher
from benchmarks.peers.tools import PEERS
from benchmarks.running import console, run_all
from grete.testing.broker import find_broker

MODULE = "benchmarks.joins"
LEFT, RIGHT = 0, 1
END = "." * DIGITS  # in place of the number: of the records that only let time go on
PADDING = "x" * 72
Sides = tuple[list[int], list[int]]  # the numbers of a key's records of both sides, in order


def sides_of(messages: int) -> dict[str, Sides]:
    """Return the records of all runs: record ``n`` is at ``n * STEP_MS``."""
    rng, sides = random.Random(7), defaultdict[str, Sides](lambda: ([], []))
    for number in range(messages):
        sides[f"k{rng.randrange(KEYS):04d}"][rng.randrange(2)].append(number)
    return sides


def make_input(bootstrap: str, messages: int, base_ms: int) -> None:
    """Fill both topics in the order of time."""
    topics, sides = input_topics(messages), sides_of(messages)
    rows = sorted((n, key, side) for key, both in sides.items() for side in (LEFT, RIGHT) for n in both[side])
    texts = ((topics[side], base_ms + n * STEP_MS, key, f"{n:0{DIGITS}d}{PADDING}".encode()) for n, key, side in rows)
    fill(bootstrap, topics, texts)


def expected(kind: str, sides: dict[str, Sides], *, of_quixstreams: bool) -> list[str]:
    """Return the results that must be told, sorted."""
    pairs_of = {"as of": _as_of, "tables": _tables}.get(kind)
    found = list[tuple[int | None, int | None]]()
    for both in sides.values():
        found += pairs_of(*both) if pairs_of else _within(kind, both, at_once=of_quixstreams)
    return sorted(told(*(None if number is None else f"{number:0{DIGITS}d}" for number in pair)) for pair in found)


def _within(kind: str, both: Sides, *, at_once: bool) -> Iterator[tuple[int | None, int | None]]:
    """Yield the pairs within the interval, and records without one: with ``at_once`` those that have none before."""
    before, after = BEFORE_MS // STEP_MS, REACH_MS // STEP_MS
    lefts, rights = both
    for left in lefts:
        matches = rights[bisect_left(rights, left - before) : bisect_right(rights, left + after)]
        yield from ((left, right) for right in matches)
        if kind != "inner" and not [right for right in matches if right < left or not at_once]:
            yield left, None
    for right in rights if kind == "outer" else ():
        last = right if at_once else right + before
        if bisect_left(lefts, right - after) == bisect_right(lefts, last):
            yield None, right


def _as_of(lefts: list[int], rights: list[int]) -> Iterator[tuple[int, int]]:
    for left in lefts:
        if index := bisect_left(rights, left):
            yield left, rights[index - 1]


def _tables(lefts: list[int], rights: list[int]) -> Iterator[tuple[int, int]]:
    yield from _as_of(lefts, rights)
    yield from ((left, right) for right, left in _as_of(rights, lefts))


def join(bootstrap: str, messages: int, base_ms: int, kind: str, form: str) -> Result:
    """Return records/s of one program over one kind of join: from its first pair to the last that a reader sees."""
    name, topics = os.urandom(4).hex(), input_topics(messages)
    os.environ |= {"BENCH_RUN": name, "BENCH_JOIN": kind, "BENCH_MESSAGES": str(messages)}
    wanted = expected(kind, sides_of(messages), of_quixstreams="quix" in form)
    late = kind in ("left", "outer") and "quix" not in form  # it tells of records without a pair at once
    closing = Closing(bootstrap, topics, base_ms + messages * STEP_MS, END.encode()) if late else None

    def watch(watcher: Watcher, directory: Path, running: Running) -> float:
        last = _watch(watcher, closing, wanted, running)
        first = min(map(int, (directory / "started").read_text("ascii").split())) / 1000
        return messages / (last - first)

    to = f"bench-joins-{name}"
    return run(bootstrap, form, "benchmarks.joining", ("Joins", kind), (",".join(topics), to), watch)


def _watch(watcher: Watcher, closing: Closing | None, wanted: list[str], running: Running) -> float:
    """Return the time at which the last pair was seen; check all of them."""
    found, seen = list[bytes](), 0.0
    while len(found) < len(wanted):
        if closing is not None:
            closing.send()
        for message in watcher.take():
            value = message.value()
            if value is not None and message.error() is None and b"." not in value:  # END: of earlier runs
                found.append(value)
        seen = time.time()
        running()
    got, due = Counter(value.decode() for value in found), Counter(wanted)
    if got != due:
        odd = f"not due {sorted((got - due).elements())[:5]}, missing {sorted((due - got).elements())[:5]}"
        raise SystemExit(f"{len(found)} pairs, {len(wanted)} were due: {odd}: the measurement does not count")
    return seen


def main() -> None:
    """Run all rounds on a broker of their own, print the table; or one measurement, as a process of its own."""
    if sys.argv[1:2] == ["join"]:
        bootstrap, messages, base, kind, form = sys.argv[2:7]
        print(json.dumps(join(bootstrap, int(messages), int(base), kind, form)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=TASKS, default=list(TASKS))
    options = parser.parse_args()
    base_ms = time.time_ns() // 1_000_000 - 2 * AFTER_MS
    for form in BESIDE:
        PEERS[form].tool.command("Joins")  # fetched and built, once
    with find_broker(loaded=True) as broker:
        console.print(f"Kafka: {broker.bootstrap} ({broker.how})")
        make_input(broker.bootstrap, options.messages, base_ms)
        plan = {
            f"{kind}: {form}": ("join", broker.bootstrap, str(options.messages), str(base_ms), kind, form)
            for kind in options.kinds
            for form in (GRETE, *BESIDE)
            if not (kind == "tables" and form.startswith("quixstreams"))  # it has none
        }
        results = run_all(MODULE, plan, options.rounds)
    title = f"{options.messages:,} records of {KEYS:,} keys, half of them of each side, joined, a commit a second"
    report("joins", results, f"Records/s: {title}")


if __name__ == "__main__":
    main()
