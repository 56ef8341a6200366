"""One run of the paper's experiment: ``python -m benchmarks.paper.cell LOG key=value …`` prints one JSON object.

A run of ``benchmarks.latency.cell`` whose job keeps the index. When all outputs have been seen, its workers commit and
end; then the index in their stores is held against a plain recount, and the commits of each task are counted.
"""

import os
import sys

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.cell import Result, Stage, allowed, main
from benchmarks.latency.workers import Workers
from benchmarks.paper.recount import broken, recount
from benchmarks.paper.techniques import TECHNIQUES
from grete.job.loader import load_job
from grete.state.read.checkpoints.commits import all_wirings, count_commits
from grete.state.read.local_reader import LocalReader

JOB = "benchmarks.paper.job"
CHECKPOINTS_MIN = 20  # of each task, while documents count


class IndexStage(Stage):
    """The processes of a run, and what it leaves."""

    job_module = JOB
    modes = TECHNIQUES

    def begin(self) -> None:
        """Count the commits that the start and the first documents have made."""
        self._before = self._commits()

    def end(self) -> Result:
        """Return checkpoints, load and the recount. Raises SystemExit: too few checkpoints, or a broken guarantee."""
        load = os.getloadavg()[0]
        own = self._own
        own.stop()
        checkpoints = min(now - before for now, before in zip(self._commits(), self._before, strict=True))
        if TECHNIQUES[self.plan.mode].checkpoints and checkpoints < CHECKPOINTS_MIN:
            raise SystemExit(f"a task has {checkpoints} checkpoints, not {CHECKPOINTS_MIN}: the run does not count")
        texts = paragraphs()
        job = load_job(JOB)
        with LocalReader(own.directory.state_directory, job) as reader:
            documents = [texts[number % len(texts)] for number in range(self.plan.documents)]
            found = recount(documents, reader.all(reader.store("postings")), reader.all(reader.store("words")))
        trouble = broken(found, allowed(self.plan, TECHNIQUES))
        if trouble is not None:
            raise SystemExit(f"the index breaks the guarantee of {self.plan.mode}: {trouble}")
        return {"checkpoints": checkpoints, "load": load, "index": found._asdict()}

    @property
    def _own(self) -> Workers:
        assert isinstance(self.job, Workers)
        return self.job

    def _commits(self) -> list[int]:
        log = self._own.directory.open_log(create=False)
        try:
            return [count_commits(log, wiring.changelog) for wiring in all_wirings(load_job(JOB))]
        finally:
            log.close()


if __name__ == "__main__":
    main(sys.argv[1:], IndexStage)
