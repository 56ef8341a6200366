"""One run of the paper's experiment: ``python -m benchmarks.paper.cell LOG key=value …`` prints one JSON object.

A run of ``benchmarks.latency.cell`` whose job keeps the index. When all outputs have been seen, its workers commit and
end; then the index in their stores is held against a plain recount, and the commits of each task are counted. Of a
peer the outputs alone tell: the reader has compared each posting, and the count that its state gives.
"""

import os
import sys
from collections.abc import Sequence
from typing import ClassVar

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.cell import Result, Stage, allowed, main
from benchmarks.latency.workers import Running, Workers
from benchmarks.on_kafka import make_topic
from benchmarks.paper.machines import Hosts
from benchmarks.paper.productions.running import Productions, stored_in
from benchmarks.paper.recount import broken, recount
from benchmarks.paper.techniques import STRONG, TECHNIQUES
from benchmarks.peers.tools import PEERS
from grete.job.loader import load_job
from grete.logs.address import KAFKA
from grete.ports import JobLog
from grete.state.read.checkpoints.commits import all_wirings, count_commits
from grete.state.read.local_reader import LocalReader
from tasks.inverted_index import Count

JOB = "benchmarks.paper.job"
STAGES = {"split": "benchmarks.paper.productions.split", "job": "benchmarks.paper.productions.index"}


class IndexStage(Stage):
    """The processes of a run, and what it leaves."""

    job_module = JOB
    modes = TECHNIQUES
    peer_options: ClassVar[Sequence[str]] = ("postings",)
    checkpoints_min: ClassVar = 20  # of each task, while documents count

    def workers(self, run: str) -> tuple[Running, str]:
        """Start the job, or the two jobs of strong productions. Raises SystemExit for those on the embedded log."""
        self._jobs: list[tuple[Workers | Hosts, str]]  # each with its module; the last one has the index
        plan, mode = self.plan, TECHNIQUES[self.plan.mode]
        if plan.machines:
            hosts = Hosts(plan.machines, plan.log, mode, plan.checkpoint_interval_ms, run, self.directory / "job")
            hosts.start(JOB, plan.partitions)
            self._jobs = [(hosts, JOB)]
            return hosts, plan.log
        if plan.mode != STRONG:
            own, log = super().workers(run)
            assert isinstance(own, Workers)
            self._jobs = [(own, JOB)]
            return own, log
        if not plan.log.startswith(KAFKA):
            raise SystemExit(f"{STRONG}: two jobs share a topic, so they need Kafka: the embedded log is one job's")
        make_topic(plan.log.removeprefix(KAFKA), stored_in(run), plan.partitions)
        how = plan.checkpoint_interval_ms, plan.partitions, run
        jobs = [Workers(plan.log, mode, *how, self.directory / name, module) for name, module in STAGES.items()]
        self._jobs = list(zip(jobs, STAGES.values(), strict=True))
        return Productions(jobs), plan.log

    def begin(self) -> None:
        """Count the commits that the start and the first documents have made."""
        self._before = [] if self.plan.mode in PEERS else self._commits()

    def end(self) -> Result:
        """Return checkpoints, load and the recount. Raises SystemExit: too few checkpoints, or a broken guarantee."""
        load = os.getloadavg()[0]
        if self.plan.mode in PEERS:
            return {"checkpoints": None, "load": load, "index": None}
        for each, _ in self._jobs:
            each.stop()
        checkpoints = min(now - before for now, before in zip(self._commits(), self._before, strict=True))
        if TECHNIQUES[self.plan.mode].checkpoints and checkpoints < self.checkpoints_min:
            raise SystemExit(
                f"a task has {checkpoints} checkpoints, not {self.checkpoints_min}: the run does not count"
            )
        texts = paragraphs()
        documents = [texts[number % len(texts)] for number in range(self.plan.documents)]
        postings, words = self._index()
        found = recount(documents, postings, words)
        trouble = broken(found, allowed(self.plan, TECHNIQUES))
        if trouble is not None:
            raise SystemExit(f"the index breaks the guarantee of {self.plan.mode}: {trouble}")
        return {"checkpoints": checkpoints, "load": load, "index": found._asdict()}

    def _index(self) -> tuple[list[tuple[str, list[int]]], list[tuple[str, Count]]]:
        """Return both stores of the index, of all partitions."""
        own, module = self._jobs[-1]
        postings: list[tuple[str, list[int]]] = []
        words: list[tuple[str, Count]] = []
        for partition in range(self.plan.partitions):
            place = own.on_machine(partition) if isinstance(own, Hosts) else own.directory
            with LocalReader(place.state_directory, load_job(module)) as reader:
                postings += reader.all(reader.store("postings"), partition)
                words += reader.all(reader.store("words"), partition)
        return postings, words

    def open_log(self) -> JobLog:
        """Return the log of the jobs."""
        own = self._jobs[-1][0]
        return (own.on_machine(0) if isinstance(own, Hosts) else own.directory).open_log(create=False)

    def _commits(self) -> list[int]:
        log = self.open_log()
        try:
            wirings = [wiring for _, module in self._jobs for wiring in all_wirings(load_job(module))]
            return [count_commits(log, wiring.changelog) for wiring in wirings]
        finally:
            log.close()


if __name__ == "__main__":
    main(sys.argv[1:], IndexStage)
