"""`grete export`: the state of a job as Parquet files; run again, what has changed since."""

from pathlib import Path
from typing import Annotated

import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import StateAt, path_named
from grete.errors import ConfigError
from grete.job.metadata import pinned_settings
from grete.spark import require_extra
from grete.state.pins.pinning import check_readable

app = typer.Typer(add_completion=False)


@job_command(app, without="set")
def export(
    named: NamedJob,
    *,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            parser=path_named,
            metavar="PATH",
            help="The directory of the files; run again, it gets what has changed.",
        ),
    ],
    store: Annotated[str | None, typer.Option(help="Only this store: its name, or STAGE/STORE.")] = None,
    at: StateAt = StateAt(),
) -> None:
    """Write the committed state into Parquet files: all of it, and later what has changed since.

    A manifest names the checkpoint and the files that count. Needs the extra spark, and no Spark.
    """
    require_extra()
    from grete.spark.export.export import export as export_job
    from grete.spark.format.options import LogSpec, Options, find_store

    address = named.address
    with named.read() as (job, log):
        check_readable(job, log)  # stores get the ids that their state has
        where = LogSpec(
            address.url,
            "" if address.config is None else str(address.config.absolute()),
            str(named.place(job, make=False).directory.absolute() / "log.db"),
        )
        stores = [(stage, each) for stage in job.stages for each in stage.all_stores()]
        if store is not None:
            stores = [find_store(Options(job, where, {"store": store}))]
        if not stores:
            raise ConfigError(f"job {job.name!r} has no stores: there is no state to export")
        settings = pinned_settings(job, log, named.settings)
        done = export_job(log, job, where, to, stores, at.asked, aligned=settings.aligned)
    for name, reason in done.full.items():
        print(f"{name}: all entries, because {reason}")
    print(f"{to} holds checkpoint {done.checkpoint_id}; {done.rows:,} rows written")
