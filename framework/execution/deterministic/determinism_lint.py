"""Warns of code that may give another result when it runs again (D3). It only warns: digests decide."""

import logging
import sys
from collections.abc import Iterator

from grete.api.jobs.job import Job
from grete.api.tasks.task import Task
from grete.errors import ConfigError
from grete.execution.deterministic.lint.project import LintFinding, Project

logger = logging.getLogger("grete")


def check_worker(job: Job) -> None:
    """Warn of suspicious lines in the code of deterministic tasks.

    Raises ConfigError if texts are hashed with a seed of this process's own: then sets of texts have another order in
    each process.
    """
    stages = [stage for stage in job.live if stage.mode == "deterministic"]
    if stages and sys.flags.hash_randomization:
        raise ConfigError(
            f"job {job.name!r} is deterministic, and this process hashes texts with a seed of its own, so that a set "
            "of texts has another order in each process: start the worker with PYTHONHASHSEED=0 in its environment"
        )
    for stage, finding in findings(job):
        logger.warning(
            "may not be deterministic",
            extra={
                "stage": stage,
                "file": finding.module,
                "line": finding.line,
                "what": finding.what,
                "instead": finding.instead,
            },
        )


def findings(job: Job) -> Iterator[tuple[str, LintFinding]]:
    """Yield the suspicious lines of deterministic tasks, each with the name of its stage."""
    for stage in job.live:
        if stage.mode == "deterministic":
            yield from ((stage.name, finding) for finding in suspicious_lines(stage.task))


def suspicious_lines(task: type[Task]) -> list[LintFinding]:
    """Return the suspicious lines that a task's code reaches in its project, in order; none without its source."""
    try:
        return Project(task).findings()
    except Exception:  # code of a form that the check does not know must not keep a worker from its work
        logger.warning("the check for code that is not deterministic has failed", exc_info=True)
        return []
