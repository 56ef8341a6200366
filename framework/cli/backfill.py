"""`grete backfill` and `grete audit`: a job's past on Spark."""

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from framework.api.job import Job
from framework.batch.task import check_batch
from framework.cli.screen import Screen, printable
from framework.cli.target import Target, directory_of, existing_log, settings_of
from framework.errors import ConfigError
from framework.logs.open import LogAddress
from framework.runtime.local import LocalRun
from framework.runtime.place import Place, pinned_settings, prepare
from framework.runtime.rewriting import settle
from framework.spark.audit import Audited, Difference, audit
from framework.spark.backfill import Done, Wanted, backfill, sources_of
from framework.spark.covering import LOG, parse_until
from framework.spark.options import Where
from framework.spark.session import local_session

CELL_CHARS = 60


def fill(
    found: Target,
    sources: Sequence[str],
    until: str | None,
    *,
    outputs: bool,
    cluster: str,
    work: str | None,
    verdict: str | None,
) -> None:
    """Backfill a job, or settle a backfill that has died. Raises ConfigError, TaskError, Fenced, Halted."""
    screen = Screen(Console())
    job, place = found.job, found.place
    if verdict is not None and (sources or until):
        raise ConfigError(f"--{verdict} settles a backfill that has died: give it alone")
    if verdict is None and not sources:
        raise ConfigError(f"--from is missing: a path of Parquet or JSON files, or {LOG} for what the log still holds")
    wanted = wanted_of(found, sources or [LOG], work)._replace(outputs=outputs)
    log = place.open_log()
    try:
        prepare(job, log, place, found.settings)
        if verdict is not None:
            settled = settle(log, job, counts=verdict == "resume")
            screen.note("there is no backfill to settle" if settled is None else _settled(*settled))
            return
        begun_s = time.monotonic()
        spark = local_session(cluster)
        with screen:
            done = backfill(spark, wanted, parse_until(until, job), log, screen)
        _tell(screen, found, done, time.monotonic() - begun_s, outputs=outputs)
    finally:
        log.close()


def compare(
    reference: str,
    directory: Path | None,
    address: LogAddress,
    sources: Sequence[str],
    sets: Sequence[str] | None,
    *,
    cluster: str,
    work: str | None,
) -> bool:
    """Audit a job; return whether nothing differs. Raises ConfigError, TaskError."""
    screen = Screen(Console())
    job, log = existing_log(reference, directory, address)
    place = Place(directory_of(job, directory, address), address=address, make=False)
    made = [path for path in (place.directory / "spark", place.directory) if not path.exists()]
    try:
        settings = pinned_settings(job, log, settings_of(sets))
        found = Target(job, reference, place, settings)
        aligned = settings.guarantee == "exactly-once"
        wanted = wanted_of(found, sources or [LOG], work)
        spark = local_session(cluster)
        with screen:
            result = audit(spark, wanted, log, screen, aligned=aligned)
    finally:
        log.close()
        for path in made:  # where Spark's stages kept their rows; what is in use stays
            with contextlib.suppress(OSError):
                path.rmdir()
    return tell_audit(screen, job, result, aligned=aligned)


def demonstrate(found: Target, local: LocalRun, screen: Screen) -> bool:
    """Audit the job of the demonstration on Spark; at least once may differ. Returns whether all is as promised."""
    screen.note("\nAuditing the state on Spark: the tasks' own code over all recorded documents, key by key …")
    spark = local_session("local[*]")
    with screen:
        result = audit(spark, wanted_of(found, [LOG], None), local.log, screen, aligned=local.aligned)
    return tell_audit(screen, found.job, result, aligned=local.aligned) or not local.aligned


def wanted_of(found: Target, sources: Sequence[str], work: str | None) -> Wanted:
    """Return what Spark is to do, with paths that executors understand. Raises ConfigError: not a job for it."""
    check_batch(found.job)
    reference, address = found.reference, found.place.address
    if reference.endswith(".py"):
        reference = str(Path(reference).absolute())
    config = "" if address.config is None else str(address.config.absolute())
    where = Where(address.url, config, str((found.place.directory / "log.db").absolute()))
    own = str((found.place.directory / "spark").absolute())
    paths = {
        topic: path if path == LOG or "://" in path else str(Path(path).absolute())
        for topic, path in sources_of(found.job, list(sources)).items()
    }
    return Wanted(found.job, reference, where, found.settings, paths, own if work is None else work)


def tell_audit(screen: Screen, job: Job, result: Audited, *, aligned: bool) -> bool:
    """Print what an audit has found; return whether nothing differs."""
    keys = sum(report.keys for report in result.reports)
    records = sum(report.records for report in result.reports)
    screen.note(
        f"{job.name}: version {result.version}: {keys:,} keys recomputed from {records:,} records{_of_stages(job)}: "
        + ("nothing differs" if not result.wrong else f"{result.wrong:,} keys differ")
    )
    if result.wrong:
        table = Table("stage", "partition", "store", "key", "in the changelog", "recomputed")
        for difference in result.differences:
            table.add_row(*_row(job, difference))
        screen.console.print(table)
        if result.wrong > len(result.differences):
            screen.note(f"… and {result.wrong - len(result.differences):,} more")
        if not aligned:
            screen.note("The job runs at least once: records that were repeated after a crash are counted again.")
    return not result.wrong


def _of_stages(job: Job) -> str:
    return f" of {len(job.stages)} stages" if len(job.stages) > 1 else ""


def _row(job: Job, difference: Difference) -> list[Text]:
    """Return the cells of a difference: decoded, where the store is one of the user's."""
    stage = job.stage(difference.stage)
    stores = [*stage.stores.values(), *(window.panes for window in stage.windows.values())]
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

    place = Text(difference.stage), Text(str(difference.partition)), Text(difference.store)
    return [*place, cell(difference.key, key=True), cell(difference.found), cell(difference.expected)]


def _settled(run_id: str, counts: bool) -> str:
    return f"the backfill {run_id} {'counts' if counts else 'is void'}: start the job"


def _tell(screen: Screen, found: Target, done: Done, seconds: float, *, outputs: bool) -> None:
    job = found.job
    first = sum(report.records + report.refused for report in done.reports)
    keys = sum(report.keys for report in done.reports)
    screen.note(
        f"{job.name}: {first:,} records{_of_stages(job)}, {keys:,} keys in {seconds:.1f} s, version {done.run.version}"
    )
    repeats = sum(report.repeats for report in done.reports)
    letters = sum(report.letters for report in done.reports)
    sent = sum(report.outputs for report in done.reports)
    if repeats:
        screen.note(f"{repeats:,} rows of offsets that were there already were left out")
    if outputs:
        screen.note(f"{sent:,} outputs to topics, {letters:,} of them dead letters, are written")
    elif letters:
        screen.note(
            f"{letters:,} records went to no store: they would be dead letters, which a backfill does not write"
        )
    if sent - letters and not outputs:
        screen.note(f"{sent - letters:,} outputs to topics are those of the past, and are not written again")
    for partition, offset in sorted(done.cover.resume.items()):
        screen.note(f"  {partition}: goes on from offset {offset:,}")
    options = (
        [] if isinstance(found.place, Place) and found.place.address.embedded else [f"--log {found.place.address.url}"]
    )
    screen.note(f"Start it: {Path(sys.argv[0]).name} up {' '.join([found.reference, *options])}")
