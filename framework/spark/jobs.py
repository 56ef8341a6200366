"""Work on a job that is asked for in Python, by a notebook or a scheduler, as the command line does it."""

import contextlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grete.errors import ConfigError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.spark.backfill.backfill import BackfillResult, BackfillSpec, backfill
from grete.spark.backfill.history_checks import accepted_of
from grete.spark.backfill.ranges import parse_until
from grete.spark.backfill.sources import LOG, check_all, source_of
from grete.spark.format.options import where_of
from grete.spark.session import local_session
from grete.state.pins.prepare import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_logger = logging.getLogger("grete.spark")


class _Logged:
    """Tells a logger."""

    def say(self, text: str) -> None:
        _logger.info("%s", text)

    def bar(self, name: str, done: int, total: int) -> None:
        _logger.debug("%s: %d of %d", name, done, total)


def backfill_job(
    job: str,
    history: "Mapping[str, str | DataFrame]",
    *,
    spark: "SparkSession | None" = None,
    directory: Path | str | None = None,
    log: str = "embedded",
    settings: Settings | None = None,
    until: str | None = None,
    outputs: bool = False,
    max_refused: int = 0,
    accept: Collection[str] = (),
    work: str | None = None,
) -> BackfillResult:
    """Build a job's state from its history, as ``grete backfill`` does, and return what was taken.

    ``job``: the file or module of its code, which executors can read. ``history``: topic → a data frame with columns
    key, value and timestamp, which gives the same rows each time it is read, or a text as of ``--from``. ``spark``: by
    default the session that is there, else one of this machine. ``directory``, ``log``, ``until``, ``outputs``,
    ``max_refused``, ``accept``, ``work``: as the options of that command.

    Raises ConfigError, TaskError, Fenced, Halted; then nothing has changed.
    """
    reference = str(Path(job).absolute()) if job.endswith(".py") else job
    loaded, settings, address = load_job(reference), settings or Settings(), LogAddress(log)
    check_all(loaded, history)
    sources = {topic: _absolute(source) for topic, source in history.items()}
    place = JobDirectory(directory_of(loaded, None if directory is None else Path(directory), address), None, address)
    work = work or str((place.directory / "spark").absolute())
    wanted = BackfillSpec(loaded, reference, where_of(place.directory, address), settings, sources, work, outputs)
    wanted = wanted._replace(accepted=accepted_of(max_refused, accept))
    upto, session = parse_until(until, loaded), _session(spark)
    with contextlib.closing(place.open_log()) as opened:
        prepare(loaded, opened, place, settings)
        return backfill(session, wanted, upto, opened, _Logged())


def _absolute(source: "str | DataFrame") -> "str | DataFrame":
    return source_of(source).text if isinstance(source, str) and source != LOG else source


def _session(given: "SparkSession | None") -> "SparkSession":
    """Return the session that is given, or there, or a new one of this machine. Raises ConfigError: Spark Connect."""
    from pyspark.sql import SparkSession

    found = given or SparkSession.getActiveSession() or local_session()
    if not isinstance(found, SparkSession):
        raise ConfigError(
            "the session is one of Spark Connect, which has no tasks that a backfill can number: give a session whose "
            "driver is this process"
        )
    return found
