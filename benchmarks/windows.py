"""Windows on Kafka, each kind beside the peers: ``python -m benchmarks.windows [--messages N] [--rounds N]``.

Each program counts the records of each key and window, and tells a count once, when its window is over. What it tells
must be as many counts as a plain computation gives, and add up to the same, or the run does not count. WRITE=1 puts
the table into docs/BENCHMARKS.md.
"""

import argparse
import json
import os
import random
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

from benchmarks.beside import AFTER_MS, BESIDE, GRETE, KEYS, STEP_MS, Closing, Running, fill, report, run
from benchmarks.on_kafka import Result, Watcher
from benchmarks.peers.tools import PEERS
from benchmarks.running import console, run_all
from benchmarks.windowing import ADVANCE_MS, DIFFERENCE_MS, GAP_MS, SIZE_MS, WINDOWS, events_topic
from grete.testing.broker import find_broker

MODULE = "benchmarks.windows"
VALUE = b"x" * 80
Times = dict[str, list[int]]  # of each key, the times of its records


def times_of(messages: int, base_ms: int) -> Times:
    """Return the records of all runs."""
    rng, times = random.Random(7), defaultdict[str, list[int]](list)
    for number in range(messages):
        times[f"k{rng.randrange(KEYS):04d}"].append(base_ms + number * STEP_MS)
    return times


def make_events(bootstrap: str, messages: int, base_ms: int) -> None:
    """Fill the input in the order of time."""
    topic, times = events_topic(messages), times_of(messages, base_ms)
    records = sorted((at, key) for key, each in times.items() for at in each)
    fill(bootstrap, [topic], ((topic, at, key, VALUE) for at, key in records))


def expected(kind: str, times: Times, *, of_quixstreams: bool) -> tuple[int, int]:
    """Return the number of counts, and their sum."""
    found = 0, 0
    for each in times.values():
        found = found[0] + len(counts := _counts(kind, each, of_quixstreams)), found[1] + sum(counts)
    return found


def _counts(kind: str, times: list[int], of_quixstreams: bool) -> list[int]:
    if kind == "session":
        breaks = [n for n in range(1, len(times)) if times[n] > times[n - 1] + GAP_MS]
        return [end - start for start, end in zip([0, *breaks], [*breaks, len(times)], strict=True)]
    counts = defaultdict[int, int](int)
    if kind != "sliding":
        advance = SIZE_MS if kind == "tumbling" else ADVANCE_MS
        for at in times:
            for start in range(at // advance * advance, at - SIZE_MS, -advance):
                counts[start] += 1
        return list(counts.values())
    starts = {at - DIFFERENCE_MS for at in times}
    if of_quixstreams:  # only windows that end with a record, and those that a later record of the key closes
        starts = {start for start in starts if start + DIFFERENCE_MS < times[-1]}
    else:
        starts |= {at + 1 for at in times}
    inside = (bisect_right(times, s + DIFFERENCE_MS) - bisect_right(times, s - 1) for s in starts)
    return [count for count in inside if count]


def count(bootstrap: str, messages: int, base_ms: int, kind: str, form: str) -> Result:
    """Return records/s of one program over one kind of window, as a reader of its results sees it."""
    name, events = os.urandom(4).hex(), events_topic(messages)
    os.environ |= {"BENCH_RUN": name, "BENCH_WINDOW": kind, "BENCH_MESSAGES": str(messages)}
    wanted = expected(kind, times_of(messages, base_ms), of_quixstreams="quix" in form)
    closing = Closing(bootstrap, [events], base_ms + messages * STEP_MS, VALUE)

    def watch(watcher: Watcher, _: Path, running: Running) -> float:
        first, last = _watch(watcher, closing, wanted, running)
        return messages / (last - first)

    return run(bootstrap, form, "benchmarks.windowing", ("Windows", kind), (events, f"bench-windows-{name}"), watch)


def _watch(watcher: Watcher, closing: Closing, wanted: tuple[int, int], running: Running) -> tuple[float, float]:
    """Return the times at which the first result was appended and the last one was seen; check their number."""
    first, found, total = float("inf"), 0, 0
    while found < wanted[0]:
        closing.send()
        for message in watcher.take():
            value = message.value()
            if value is not None and message.error() is None:
                first = min(first, message.timestamp()[1] / 1000)
                found, total = found + 1, total + int(value)
        running()
    if (found, total) != wanted:
        raise SystemExit(f"{found} counts, in sum {total}, where {wanted} were due: the measurement does not count")
    return first, time.time()


def main() -> None:
    """Run all rounds on a broker of their own, print the table; or one measurement, as a process of its own."""
    if sys.argv[1:2] == ["count"]:
        bootstrap, messages, base, kind, form = sys.argv[2:7]
        print(json.dumps(count(bootstrap, int(messages), int(base), kind, form)))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    base_ms = (time.time_ns() // 1_000_000 - 2 * AFTER_MS) // SIZE_MS * SIZE_MS
    for form in BESIDE:
        PEERS[form].tool.command("Windows")  # fetched and built, once
    with find_broker(loaded=True) as broker:
        console.print(f"Kafka: {broker.bootstrap} ({broker.how})")
        make_events(broker.bootstrap, options.messages, base_ms)
        plan = {
            f"{kind}: {form}": ("count", broker.bootstrap, str(options.messages), str(base_ms), kind, form)
            for kind in WINDOWS
            for form in (GRETE, *BESIDE)
            if not (kind == "session" and form.startswith("quixstreams"))  # it has none
        }
        results = run_all(MODULE, plan, options.rounds)
    title = f"{options.messages:,} records of {KEYS:,} keys counted by window, final results, a commit a second"
    report("windows", results, f"Records/s: {title}")


if __name__ == "__main__":
    main()
