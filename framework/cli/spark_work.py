"""The work that a command gives Spark."""

from pathlib import Path

from grete.cli.job_target import JobTarget
from grete.cli.options import HistoryOptions
from grete.errors import ConfigError
from grete.logs.address import LogAddress
from grete.spark.backfill.backfill import Wanted, sources_of
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.spark.backfill.ranges import LOG
from grete.spark.format.options import Where
from grete.spark.moving.spark_mover import SparkMover
from grete.spark.telling import Telling


def wanted_of(found: JobTarget, history: HistoryOptions, *, outputs: bool = False) -> Wanted:
    """Return the work for Spark, with paths that executors understand. Raises ConfigError: an option is wrong.

    The history is that of the log where no option names another.
    """
    reference, address = found.reference, found.job_directory.address
    if reference.endswith(".py"):
        reference = str(Path(reference).absolute())
    where = where_of(found.job_directory.directory, address)
    own = str((found.job_directory.directory / "spark").absolute())
    paths = {
        topic: path if path == LOG or "://" in path else str(Path(path).absolute())
        for topic, path in sources_of(found.job, history.source or [LOG]).items()
    }
    work = own if history.work is None else history.work
    wanted = Wanted(found.job, reference, where, found.settings, paths, work)
    return wanted._replace(outputs=outputs, accepted=_accepted(history))


def where_of(directory: Path, address: LogAddress) -> Where:
    """Return the place of a job's log, with paths that executors understand."""
    config = "" if address.config is None else str(address.config.absolute())
    return Where(address.url, config, str((directory / "log.db").absolute()))


def spark_mover(
    cluster: str, address: LogAddress, directory: Path, into: Path, work: str | None, telling: Telling
) -> SparkMover:
    """Return the mover by Spark for the job in a directory; ``into``: the job that gets its state."""
    return SparkMover(cluster, where_of(directory, address), where_of(into, address), work, telling)


def _accepted(history: HistoryOptions) -> Accepted:
    """Return the limits of --max-refused and --accept. Raises ConfigError for another word."""
    kinds = history.accept or []
    if wrong := sorted(set(kinds) - set(Accept)):
        raise ConfigError(f"--accept {wrong[0]}: write one of {', '.join(Accept)}")
    return Accepted(history.max_refused, frozenset(map(Accept, kinds)))
