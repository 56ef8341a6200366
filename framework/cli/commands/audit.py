"""`grete audit`: a job's state recomputed on Spark and compared."""

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grete.api.jobs.job import Job
from grete.cli.commands.audit_follow import follow_job
from grete.cli.job_command import job_command
from grete.cli.job_target import JobTarget, NamedJob
from grete.cli.options import HistoryOptions
from grete.cli.output.patient_output import standard_error, standard_output
from grete.cli.output.progress import Screen, of_stages
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.errors import ConfigError, ExitCode
from grete.job.metadata import pinned_settings
from grete.replay.audit.refused import refuse_losses
from grete.spark import require_extra
from grete.state.read.shown import printable

if TYPE_CHECKING:
    from grete.spark.backfill.audit import Audited, StateDifference

app = typer.Typer(add_completion=False)
MakeCalls = Annotated[
    bool,
    typer.Option(
        "--make-calls",
        help="Make the calls of async tasks again whose results are not recorded; else such a job is refused.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Go on beside the running job until Ctrl-C: make each of its steps from checkpoint to checkpoint "
        "again. Needs no Spark.",
    ),
]
Share = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="With --follow: the share of the keys that is made again, the same keys each time, in stages that no "
        "other stage reads.",
    ),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="With --follow: serve /metrics for Prometheus here. Default host: 127.0.0.1.",
    ),
]


@job_command(app)
def audit(
    named: NamedJob,
    *,
    history: HistoryOptions = HistoryOptions(),
    make_calls: MakeCalls = False,
    follow: Follow = False,
    share: Share = 1.0,
    http: MetricsAddress = None,
) -> ExitCode:
    """Compute a job's state again from its inputs, on Spark, and compare it key by key; exit 1 if it differs."""
    if follow:
        if history._replace(as_json=False) != HistoryOptions() or make_calls:
            raise ConfigError(
                "--follow goes on from the newest checkpoint, without Spark: leave --from, --map, --max-refused, "
                "--accept, --make-calls, --spark, --work and --metrics out"
            )
        same = follow_job(named, share=share, http=http, as_json=history.as_json)
    else:
        if share != 1 or http is not None:
            raise ConfigError("--share and --http are for an audit that goes on: add --follow")
        same = _compare(named, history, makes_calls=make_calls)
    return ExitCode.DONE if same else ExitCode.FAILED


def _compare(named: NamedJob, history: HistoryOptions, *, makes_calls: bool) -> bool:
    """Audit a job; return whether nothing differs. Raises ConfigError, TaskError."""
    require_extra()
    from grete.cli.spark_work import wanted_of
    from grete.spark.backfill.account.account_metrics import write_metrics
    from grete.spark.backfill.audit import audit as audit_job
    from grete.spark.session import local_session

    screen = Screen(Console(file=standard_error() if history.as_json else standard_output()))
    with named.read() as (job, log):
        job_directory = named.place(job, make=False)
        made = [path for path in (job_directory.directory / "spark", job_directory.directory) if not path.exists()]
        try:
            settings = pinned_settings(job, log, named.settings)
            refuse_losses(job, settings)
            aligned = settings.aligned
            wanted = wanted_of(JobTarget(job, named.reference, job_directory, settings), history)
            spark = local_session(history.cluster)
            with screen:
                result = audit_job(spark, wanted, log, screen, aligned=aligned, makes_calls=makes_calls)
        finally:
            for path in made:  # where Spark's stages kept their rows; what is in use stays
                with contextlib.suppress(OSError):
                    path.rmdir()
    for each in (*result.account.files, *result.account.inputs) if history.as_json else ():
        print_json(each)
    for difference in result.differences if history.as_json else ():
        print_json(plain_difference(job, difference))
    if history.metrics is not None:
        keys = sum(report.keys for report in result.reports)
        write_metrics(history.metrics, job.name, result.account, keys, result.wrong)
    return tell_audit(screen, job, result, aligned=aligned)


def tell_audit(screen: Screen, job: Job, result: "Audited", *, aligned: bool) -> bool:
    """Print what an audit has found; return whether nothing differs."""
    keys = sum(report.keys for report in result.reports)
    records = sum(report.records for report in result.reports)
    from grete.spark.backfill.account.shown_account import tables

    for table in tables(result.account):
        print_table(screen.console, table)
    screen.say(
        f"{job.name}: checkpoint {result.checkpoint_id}: {keys:,} keys recomputed from {records:,} "
        f"records{of_stages(job)}: " + ("nothing differs" if not result.wrong else f"{result.wrong:,} keys differ")
    )
    if result.left_out:
        screen.say(f"not compared: {', '.join(result.left_out)}, for the reasons above")
    if result.wrong:
        print_table(screen.console, table_of_differences(job, result.differences))
        if result.wrong > len(result.differences):
            screen.say(f"… and {result.wrong - len(result.differences):,} more")
        if not aligned:
            screen.say("The job runs at least once: records that were repeated after a crash are counted again.")
    return not result.wrong


CELL_CHARS = 60  # of a key or value: three of them fit on a wide terminal
_NAMES = ("stage", "partition", "store", "key", "in_changelog", "recomputed")


def table_of_differences(job: Job, differences: Iterable["StateDifference"]) -> Table:
    """Return a table of them."""
    table = Table("stage", "partition", "store", "key", "in the changelog", "recomputed")
    for difference in differences:
        table.add_row(*_cells(job, difference))
    return table


def plain_difference(job: Job, difference: "StateDifference") -> dict[str, str | int | None]:
    """Return a difference with the texts of its key and values."""
    return dict(zip(_NAMES, (*difference[:3], *_decoded(job, difference)), strict=True))


def _cells(job: Job, difference: "StateDifference") -> list[Text]:
    """Return the cells of a difference."""
    where = difference.stage, str(difference.partition), difference.store
    cells = ("–" if text is None else text for text in _decoded(job, difference))
    return [Text(text if len(text) <= CELL_CHARS else text[:CELL_CHARS] + "…") for text in (*where, *cells)]


def _decoded(job: Job, difference: "StateDifference") -> list[str | None]:
    """Return key, value found and value expected: decoded, where the store is one of the user's."""
    stage = job.stage(difference.stage)
    stores = stage.all_stores()
    declared = next((store for store in stores if store.name == difference.store), None)

    def text(raw: bytes | None, *, key: bool = False) -> str | None:
        if raw is None:
            return None
        try:
            value = raw if declared is None else (declared.key if key else declared.value).decode(raw)
        except Exception:  # noqa: BLE001  # a serde may raise anything; the bytes are shown then
            value = raw
        return printable(repr(value))

    return [text(difference.key, key=True), text(difference.found), text(difference.expected)]
