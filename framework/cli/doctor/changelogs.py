"""The changelogs: whether a start can read the end of each, and whether its last commit is of this job."""

from collections.abc import Iterator

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.core.graph.task_topology import TaskWiring
from grete.errors import FrameworkError
from grete.ports import JobLogReader
from grete.state.pins.graph_pinning import commits_of
from grete.state.read.checkpoints.commits import CommittedAt


def look(report: Report, job: Job, log: JobLogReader) -> Iterator[tuple[TaskWiring, CommittedAt]]:
    """Note what keeps a task from its start; yield the others that have committed, with their last commits."""
    well = 0
    try:
        for wiring, found in commits_of(job, log):
            if isinstance(found, FrameworkError):
                report.failed("changelog", wiring.name, found)
            else:
                well += 1
                yield wiring, found
    except FrameworkError as error:
        report.failed("changelog", job.name, error)
        return
    told = f"the last commits of {well} tasks can be read; grete changelog verify reads all"
    report.ok("changelog", job.name, told if well else "nothing is committed yet")
