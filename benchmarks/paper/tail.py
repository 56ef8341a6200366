"""The slow documents have something in common: ``make bench EXPERIMENT=paper.tail [ROUNDS=2] [WRITE=1]``, on Kafka.

Runs with a checkpoint each 500 ms and with none, by turns. Their documents are told apart by the number of words, and
by whether they were sent about when a task committed: the log says when each commit was appended.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.cell import Result, main
from benchmarks.latency.modes import HOUR_MS
from benchmarks.paper.cell import IndexStage
from benchmarks.paper.report import PERCENTILES
from benchmarks.results import Cell, Kept, Table, markdown
from benchmarks.running import console, keep, measure_any, taken
from grete.job.loader import load_job
from grete.logs.address import KAFKA
from grete.logs.partition_reader import rows_left
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.state.read.checkpoints.commits import all_wirings
from grete.testing.broker import find_broker
from tasks.inverted_index import positions_by_word

MODES = ("at-least-once", "deterministic, sequenced")
INTERVALS_MS = (500, HOUR_MS)
SECONDS = 20
BEFORE_S, BEHIND_S = 0.03, 0.02  # of an append: a document that was sent then may meet the commit, or RocksDB behind it
LEAST = 100  # documents of a kind that is told
LONG = 0.9  # the share of documents with fewer words than a long one


class Document(NamedTuple):
    """A document that counts."""

    latency_ms: float
    words: int
    near_commit: bool


class TailStage(IndexStage):
    """The same run; it tells of each document, and asks for no checkpoints."""

    checkpoints_min = 0

    def end(self) -> Result:
        """Return each document's words, and whether it was sent about when a task committed."""
        found = super().end()
        sent, seen = (json.loads(self.result(module).read_text()) for module in ("feeder", "reader"))
        commits, texts = self._commits_s(), paragraphs()
        documents = []
        for number in range(self.plan.first, self.plan.documents):
            begun, at = sent[number], seen["latest"][number]
            near = any(commit - BEFORE_S < begun < commit + BEHIND_S for commit in commits)
            words = len(positions_by_word(texts[number % len(texts)]))
            documents.append(Document((at - begun) * 1000, words, near))
        return found | {"of_documents": documents}

    def _commits_s(self) -> list[float]:
        """Return the append times of all commits, by the monotonic clock in s: the log is on this machine."""
        ahead_s = time.time() - time.monotonic()
        log = self.open_log()
        try:
            rows = [
                row
                for _, module in self._jobs
                for wiring in all_wirings(load_job(module))
                for row in rows_left(log, wiring.changelog, *log.bounds(wiring.changelog))
            ]
        finally:
            log.close()
        kind = ChangelogType.COMMIT
        return [r.append_time_ms / 1000 - ahead_s for r in rows if decode_changelog_header(r.value or b"").type is kind]


def lines(name: str, runs: Sequence[dict[str, Any]]) -> list[list[Cell]]:
    """Return a row for all documents of equal runs, and one for each kind of document: how many, and percentiles."""
    documents = [Document(*each) for run in runs for each in run["of_documents"]]
    bound = sorted(each.words for each in documents)[int(LONG * len(documents))]
    kinds: dict[str, Callable[[Document], bool]] = {
        "all": lambda _: True,
        "not sent near a commit": lambda each: not each.near_commit,
        "sent near a commit": lambda each: each.near_commit,
        f"below {bound} words": lambda each: each.words < bound,
        f"{bound} words and more": lambda each: each.words >= bound,
    }
    rows: list[list[Cell]] = []
    for kind, chosen in kinds.items():
        ordered = [each.latency_ms for each in documents if chosen(each)]
        if len(ordered) > LEAST:
            cuts = statistics.quantiles(ordered, n=100)
            rows.append([name, kind, len(ordered), *(round(cuts[number - 1], 1) for number in (50, 75, 95, 99))])
    return rows


def measure(rounds: int) -> None:
    """Run all by turns on a broker of their own, print the table, and with WRITE=1 put it into the docs."""
    runs: dict[str, list[dict[str, Any]]] = {}
    with find_broker(loaded=True) as broker:
        for _ in range(rounds + 1):
            for mode in MODES:
                for interval in INTERVALS_MS:
                    options = f"mode={mode}", f"checkpoint_interval_ms={interval}", f"seconds={SECONDS}"
                    found = measure_any("benchmarks.paper.tail", KAFKA + broker.bootstrap, *options)
                    name = f"{mode}, {'no checkpoint' if interval == HOUR_MS else f'{interval} ms'}"
                    runs.setdefault(name, []).append(found)
    counted = {name: each[1:] for name, each in runs.items()}  # in the first round the broker's code was cold
    run = taken("confluent-kafka", "rocksdict", "msgspec")
    run.command = "make bench EXPERIMENT=paper.tail"
    each_p99 = (f"{name}: {', '.join(str(round(found['p99'], 1)) for found in each)}" for name, each in counted.items())
    run.notes = [f"{rounds} runs of {SECONDS} s each. p99 of each run in ms: {'; '.join(each_p99)}."]
    columns = ["technique", "documents", "how many", *(f"{name} ms" for name in PERCENTILES)]
    rows = [row for name, each in counted.items() for row in lines(name, each)]
    table = Table("Slow documents, 2 × 2 tasks, 50 documents a second", columns, rows)
    console.print(markdown(Kept([run])), *rows, sep="\n", markup=False, soft_wrap=True)
    keep("paper-tail", run, [table])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1:], TailStage)
    else:
        measure(int(os.environ.get("ROUNDS") or 2))
