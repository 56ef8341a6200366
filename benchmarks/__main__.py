"""All benchmarks of one log: ``python -m benchmarks [--log embedded|kafka|kafka://HOST:PORT] [--rounds N] [--keys N]``.

Machines are noisy: what counts are ratios within one run. Each measurement has a process and a directory of its own.
WRITE=1 puts the tables into docs/BENCHMARKS.md.
"""

import argparse
import json
import os
from pathlib import Path

from rich.table import Table

from benchmarks import results as kept
from benchmarks.kafka_tables import measure_kafka
from benchmarks.running import Results, keep, median, run_all, say_where, show, taken


def plan(words: int, skewed_words: int, keys: int) -> dict[str, tuple[str, ...]]:
    """Return label → measurement, in the order of one round."""
    few = f"words={skewed_words}"
    return {
        "exactly once": ("throughput", f"words={words}", "processing_guarantee=exactly-once"),
        "at least once": ("throughput", f"words={words}", "processing_guarantee=at-least-once"),
        "bare loop": ("bare", f"words={words}"),
        "early records buffered": ("skewed", few),
        "buffered, 16 KiB in memory": ("skewed", few, "early_memory_bytes_max=16384"),
        "skipped, read again (bound 0)": ("skewed", few, "early_bytes_max=0"),
        "restore": ("restore", f"keys={keys}"),
    }


def show_throughput(results: Results) -> kept.Table:
    """Print both guarantees beside the bare loop."""
    table = Table(title="Two stages in one worker on the embedded log, process() as in the README")
    for column in ("", "words/s (median)", "runs", "of at least once", "of the bare loop", "peak RSS MiB"):
        table.add_column(column, justify="left" if not column else "right")
    at_least, bare = (median(results, label, "words_per_s") for label in ("at least once", "bare loop"))
    for label in ("exactly once", "at least once", "bare loop"):
        rate = median(results, label, "words_per_s")
        runs = " ".join(f"{result['words_per_s'] / 1000:.0f}k" for result in results[label])
        rss = median(results, label, "rss_mib")
        table.add_row(label, f"{rate:,.0f}", runs, f"{rate / at_least:.2f}", f"{rate / bare:.2f}", f"{rss:.0f}")
    return show(table)


def show_early(results: Results) -> kept.Table:
    """Print what the early buffer is worth when sources do not keep step."""
    table = Table(title="Two workers, one source slow: early records kept for their checkpoint, or read again")
    for column in ("", "words/s (median)", "early", "of these on disk", "seeks back", "frames skipped"):
        table.add_column(column, justify="left" if not column else "right")
    for label in ("early records buffered", "buffered, 16 KiB in memory", "skipped, read again (bound 0)"):
        early, disk = (median(results, label, figure) for figure in ("early_share", "early_on_disk_share"))
        row = [f"{median(results, label, 'words_per_s'):,.0f}", f"{early:.1%}", f"{disk:.1%}"]
        row += [f"{median(results, label, figure):,.0f}" for figure in ("seeks_back", "frames_skipped")]
        table.add_row(label, *row)
    return show(table)


def show_restore(results: Results, keys: int) -> kept.Table:
    """Print how long a task needs to come back."""
    table = Table(title=f"Coming back with {keys:,} keys of 80 bytes: from the start of the worker's loop to running")
    for column in ("", "seconds (median)", "changelog records", "records/s"):
        table.add_column(column, justify="left" if not column else "right")
    for label, name in (("same host: redo", "redo"), ("state deleted: restore", "restore")):
        figures = [median(results, "restore", f"{name}_{figure}") for figure in ("s", "records", "records_per_s")]
        table.add_row(label, f"{figures[0]:.2f}", f"{figures[1]:,.0f}", f"{figures[2]:,.0f}")
    return show(table)


def measure_embedded(rounds: int, words: int, skewed_words: int, keys: int) -> Results:
    """Run everything on the embedded log, print the tables."""
    results = run_all("benchmarks.measure", plan(words, skewed_words, keys), rounds)
    say_where("rocksdict", "msgspec")
    tables = [show_throughput(results), show_early(results), show_restore(results, keys)]
    keep("embedded", taken("rocksdict", "msgspec"), tables)
    return results


def main() -> None:
    """Run all rounds, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", default=os.environ.get("LOG") or "embedded", help="kafka: a broker of its own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=400_000, help="embedded: words")
    parser.add_argument("--skewed-words", type=int, default=80_000, help="embedded: words, one source slow")
    parser.add_argument("--messages", type=int, default=400_000, help="Kafka: messages to count")
    parser.add_argument("--keys", type=int, default=1_000_000, help="to come back with")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    if options.log == "embedded":
        results = measure_embedded(options.rounds, options.words, options.skewed_words, options.keys)
    else:
        results = measure_kafka(options.log, options.rounds, options.messages, options.keys)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
