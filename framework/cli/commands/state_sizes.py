"""``grete state sizes``: what the stores of a job hold, store by store and task by task."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from grete.cli.job_target import existing_log
from grete.cli.moved_state import say
from grete.cli.reading import print_json
from grete.cli.tables import print_table
from grete.clock_text import clock_text
from grete.job.directory import directory_of
from grete.logs.address import LogAddress
from grete.state.newest import NewestReader


def state_sizes(reference: str, directory: Path | None, address: LogAddress, *, as_json: bool = False) -> None:
    """Print a table of all stores."""
    table = Table("task", "store", "entries", "bytes", "oldest entry", box=None)
    with (
        existing_log(reference, directory, address) as (job, log),
        NewestReader(log, job, directory_of(job, directory, address) / "state", say) as reader,
    ):
        for size in (size for stage in job.stages for store in stage.all_stores() for size in reader.sizes(store)):
            if as_json:
                print_json(size._asdict())
                continue
            oldest = "–" if size.oldest_ms is None else _text(size.oldest_ms)
            table.add_row(size.task, size.store, f"{size.entries:,}", f"{size.size_bytes:,}", oldest)
    if not as_json:
        print_table(Console(), table)


def _text(at: int) -> str:
    """Return an event time in words, or the number of ms if no calendar has it."""
    return clock_text(at, "%Y-%m-%dT%H:%M:%S+00:00", utc=True)
