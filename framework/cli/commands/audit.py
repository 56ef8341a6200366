"""`grete audit`: a job's state recomputed on Spark and compared."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grete.api.job import Job
from grete.cli.job_target import JobTarget, existing_log
from grete.cli.patient_output import standard_output
from grete.cli.progress import Screen
from grete.cli.spark_work import of_stages, wanted_of
from grete.cli.tables import print_table
from grete.job.directory import JobDirectory, directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.replay.audit.refused import refuse_losses
from grete.settings import Settings
from grete.spark.backfill.audit import Audited, StateDifference, audit
from grete.spark.backfill.history_checks import Accepted
from grete.spark.backfill.ranges import LOG
from grete.spark.session import local_session
from grete.state.shown import printable

CELL_CHARS = 60  # of a key or value: three of them fit on a wide terminal


def compare(
    reference: str,
    directory: Path | None,
    address: LogAddress,
    sources: Sequence[str],
    settings: Settings,
    *,
    cluster: str,
    work: str | None,
    makes_calls: bool,
    accepted: Accepted,
) -> bool:
    """Audit a job; return whether nothing differs. Raises ConfigError, TaskError."""
    screen = Screen(Console(file=standard_output()))
    with existing_log(reference, directory, address) as (job, log):
        job_directory = JobDirectory(directory_of(job, directory, address), address=address, make=False)
        made = [path for path in (job_directory.directory / "spark", job_directory.directory) if not path.exists()]
        try:
            settings = pinned_settings(job, log, settings)
            found = JobTarget(job, reference, job_directory, settings)
            refuse_losses(job, settings)
            aligned = settings.aligned
            wanted = wanted_of(found, sources or [LOG], work)._replace(accepted=accepted)
            spark = local_session(cluster)
            with screen:
                result = audit(spark, wanted, log, screen, aligned=aligned, makes_calls=makes_calls)
        finally:
            for path in made:  # where Spark's stages kept their rows; what is in use stays
                with contextlib.suppress(OSError):
                    path.rmdir()
    return tell_audit(screen, job, result, aligned=aligned)


def tell_audit(screen: Screen, job: Job, result: Audited, *, aligned: bool) -> bool:
    """Print what an audit has found; return whether nothing differs."""
    keys = sum(report.keys for report in result.reports)
    records = sum(report.records for report in result.reports)
    screen.say(
        f"{job.name}: checkpoint {result.checkpoint_id}: {keys:,} keys recomputed from {records:,} "
        f"records{of_stages(job)}: " + ("nothing differs" if not result.wrong else f"{result.wrong:,} keys differ")
    )
    if result.left_out:
        screen.say(f"not compared: {', '.join(result.left_out)}, for the reasons above")
    if result.wrong:
        table = Table("stage", "partition", "store", "key", "in the changelog", "recomputed")
        for difference in result.differences:
            table.add_row(*_row(job, difference))
        print_table(screen.console, table)
        if result.wrong > len(result.differences):
            screen.say(f"… and {result.wrong - len(result.differences):,} more")
        if not aligned:
            screen.say("The job runs at least once: records that were repeated after a crash are counted again.")
    return not result.wrong


def _row(job: Job, difference: StateDifference) -> list[Text]:
    """Return the cells of a difference: decoded, where the store is one of the user's."""
    stage = job.stage(difference.stage)
    stores = stage.all_stores()
    declared = next((store for store in stores if store.name == difference.store), None)

    def cell(raw: bytes | None, *, key: bool = False) -> Text:
        if raw is None:
            return Text("–")
        try:
            value = raw if declared is None else (declared.key if key else declared.value).decode(raw)
        except Exception:  # noqa: BLE001  # a serde may raise anything; the bytes are shown then
            value = raw
        text = printable(repr(value))
        return Text(text if len(text) <= CELL_CHARS else text[:CELL_CHARS] + "…")

    where = Text(difference.stage), Text(str(difference.partition)), Text(difference.store)
    return [*where, cell(difference.key, key=True), cell(difference.found), cell(difference.expected)]
