"""`grete export`: the state of a job as Parquet files; run again, what has changed since."""

import os
from pathlib import Path

from grete.cli.job_target import existing_log
from grete.errors import ConfigError
from grete.job.directory import directory_of
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress
from grete.settings import from_environment
from grete.spark import require_extra
from grete.state.pinning import check_readable


def export(
    reference: str, to: Path, store: str | None, checkpoint_id: int | None, directory: Path | None, address: LogAddress
) -> None:
    """Export and say what was done. Raises ConfigError."""
    require_extra()
    from grete.spark.export.export import export as export_job
    from grete.spark.format.options import Options, Where, find_store

    with existing_log(reference, directory, address) as (job, log):
        check_readable(job, log)  # stores get the ids that their state has
        where = Where(
            address.url,
            "" if address.config is None else str(address.config.absolute()),
            str(directory_of(job, directory, address).absolute() / "log.db"),
        )
        stores = [(stage, each) for stage in job.stages for each in stage.all_stores()]
        if store is not None:
            stores = [find_store(Options(job, where, {"store": store}))]
        if not stores:
            raise ConfigError(f"job {job.name!r} has no stores: there is no state to export")
        settings = pinned_settings(job, log, from_environment(dict(os.environ)))
        done = export_job(log, job, where, to, stores, checkpoint_id, aligned=settings.aligned)
    for name, reason in done.full.items():
        print(f"{name}: all entries, because {reason}")
    print(f"{to} holds checkpoint {done.checkpoint_id}; {done.rows:,} rows written")
