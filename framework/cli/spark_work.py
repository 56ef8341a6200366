"""The work that a command gives Spark."""

from pathlib import Path

from grete.cli.job_target import JobTarget
from grete.cli.options import HistoryOptions
from grete.logs.address import LogAddress
from grete.spark.backfill.backfill import BackfillSpec
from grete.spark.backfill.history_checks import accepted_of
from grete.spark.backfill.sources import LOG, columns_of, source_of, sources_of
from grete.spark.format.options import where_of
from grete.spark.moving.spark_mover import SparkMover
from grete.spark.spark_progress import ProgressSink


def wanted_of(found: JobTarget, history: HistoryOptions, *, outputs: bool = False) -> BackfillSpec:
    """Return the work for Spark, with paths that executors understand. Raises ConfigError: an option is wrong.

    The history is that of the log where no option names another.
    """
    reference, address = found.reference, found.job_directory.address
    if reference.endswith(".py"):
        reference = str(Path(reference).absolute())
    where = where_of(found.job_directory.directory, address)
    own = str((found.job_directory.directory / "spark").absolute())
    sources = {
        topic: text if text == LOG else source_of(text).text
        for topic, text in sources_of(found.job, history.source or [LOG]).items()
    }
    work = own if history.work is None else history.work
    wanted = BackfillSpec(found.job, reference, where, found.settings, sources, work)
    columns = columns_of(found.job, history.columns or [])
    return wanted._replace(
        outputs=outputs, accepted=accepted_of(history.max_refused, history.accept or []), columns=columns
    )


def spark_mover(
    cluster: str, address: LogAddress, directory: Path, into: Path, work: str | None, telling: ProgressSink
) -> SparkMover:
    """Return the mover by Spark for the job in a directory; ``into``: the job that gets its state."""
    return SparkMover(cluster, where_of(directory, address), where_of(into, address), work, telling)
