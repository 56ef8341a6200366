"""The work that a command gives Spark."""

from collections.abc import Sequence
from pathlib import Path

from framework.api.job import Job
from framework.cli.job_target import JobTarget
from framework.spark.backfill.backfill import Wanted, sources_of
from framework.spark.backfill.ranges import LOG
from framework.spark.format.options import Where


def wanted_of(found: JobTarget, sources: Sequence[str], work: str | None) -> Wanted:
    """Return the work for Spark, with paths that executors understand. Raises ConfigError: ``sources`` are wrong."""
    reference, address = found.reference, found.job_directory.address
    if reference.endswith(".py"):
        reference = str(Path(reference).absolute())
    config = "" if address.config is None else str(address.config.absolute())
    where = Where(address.url, config, str((found.job_directory.directory / "log.db").absolute()))
    own = str((found.job_directory.directory / "spark").absolute())
    paths = {
        topic: path if path == LOG or "://" in path else str(Path(path).absolute())
        for topic, path in sources_of(found.job, list(sources)).items()
    }
    return Wanted(found.job, reference, where, found.settings, paths, own if work is None else work)


def of_stages(job: Job) -> str:
    """Return how many stages a job has, in words, if it is more than one."""
    return f" of {len(job.stages)} stages" if len(job.stages) > 1 else ""
