"""`grete state`: the committed state of a job, entry by entry, and its size."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import at_checkpoint, say
from grete.cli.options import AsJson, AtCheckpoint
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.clock_text import clock_text
from grete.errors import ExitCode
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.newest import NewestReader
from grete.state.read.shown import from_text, plain, to_text
from grete.state.read.snapshot_reader import SnapshotReader

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Read the committed state of a job, also while it runs."
)
StoreName = Annotated[
    str, typer.Argument(metavar="STORE", help="STORE, or STAGE/STORE where several stages have one of the name.")
]


@contextlib.contextmanager
def _reader(named: NamedJob, asked: AsOf | None) -> Iterator[NewestReader | SnapshotReader]:
    """Yield a reader of the newest state (from up-to-date local stores, else the changelogs), or of an older one."""
    with named.read() as (job, log):
        if asked is None:
            with NewestReader(log, job, named.place(job, make=False).state_directory, say) as newest:
                yield newest
        else:
            yield SnapshotReader(log, job, at_checkpoint(job, log, asked))


@job_command(app, "get", without="set")
def state_get(
    named: NamedJob,
    store: StoreName,
    key: Annotated[
        str, typer.Argument(help="The key as state scan prints it: text, a number, JSON or hex digits; \\0 is NUL.")
    ],
    *,
    at: AtCheckpoint = AtCheckpoint(),
) -> ExitCode:
    """Print the value of one key; exit 1 if there is none."""
    with _reader(named, at.asked) as reader:
        declared = reader.store(store)
        wanted = from_text(declared.key, key)
        values = [value for _, value in reader.find(declared, wanted)]
    for value in values:
        _print(wanted, value) if at.json else print(to_text(value))
    if not values:
        print(f"grete: store {store} has no key {key!r}", file=sys.stderr)
    return ExitCode.DONE if values else ExitCode.FAILED


@job_command(app, "scan", without="set")
def state_scan(
    named: NamedJob,
    store: StoreName,
    *,
    prefix: Annotated[str | None, typer.Option(help="Print only keys that begin with this.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="Print at most this many entries.")] = 1000,
    at: AtCheckpoint = AtCheckpoint(),
) -> None:
    """Print the entries of a store, one per line: key and value."""
    with _reader(named, at.asked) as reader:
        declared = reader.store(store)
        rows = reader.all(declared) if prefix is None else reader.prefix(declared, from_text(declared.key, prefix))
        for number, (key, value) in enumerate(rows):
            if number == limit:
                Console(stderr=True).print(f"… and more: --limit {10 * limit} shows the next ones", highlight=False)
                return
            _print(key, value) if at.json else print(f"{to_text(key)}\t{to_text(value)}")


def _print(key: object, value: object) -> None:
    print_json({"key": plain(key), "value": plain(value)})


@job_command(app, "sizes", without="set")
def state_sizes(named: NamedJob, *, json: AsJson = False) -> None:
    """Print entries and bytes of each store and task, and the time of the oldest entry where entries expire."""
    table = Table("task", "store", "entries", "bytes", "oldest entry", box=None)
    with (
        named.read() as (job, log),
        NewestReader(log, job, named.place(job, make=False).state_directory, say) as reader,
    ):
        for size in (size for stage in job.stages for store in stage.all_stores() for size in reader.sizes(store)):
            if json:
                print_json(size._asdict())
                continue
            oldest = "–" if size.oldest_ms is None else clock_text(size.oldest_ms, _OLDEST, utc=True)
            table.add_row(size.task, size.store, f"{size.entries:,}", f"{size.size_bytes:,}", oldest)
    if not json:
        print_table(Console(), table)


_OLDEST = "%Y-%m-%dT%H:%M:%S+00:00"  # an event time; one that no calendar has is printed as a number of ms
