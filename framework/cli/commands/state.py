"""Commands that only read: state, checkpoints, changelogs, external topics."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from grete.cli.job_target import existing_log
from grete.cli.moved_state import at_checkpoint, say
from grete.cli.reading import print_json
from grete.errors import ExitCode
from grete.job.directory import directory_of
from grete.logs.address import LogAddress
from grete.state.newest import NewestReader
from grete.state.shown import from_text, plain, to_text
from grete.state.snapshot_reader import SnapshotReader


@contextlib.contextmanager
def _reader(
    reference: str, directory: Path | None, address: LogAddress, checkpoint_id: int | None
) -> Iterator[NewestReader | SnapshotReader]:
    """Yield a reader of the newest state (from up-to-date local stores, else the changelogs), or of an older one."""
    with existing_log(reference, directory, address) as (job, log):
        if checkpoint_id is None:
            with NewestReader(log, job, directory_of(job, directory, address) / "state", say) as newest:
                yield newest
        else:
            yield SnapshotReader(log, job, at_checkpoint(job, log, checkpoint_id))


def state_get(
    reference: str,
    store: str,
    key: str,
    checkpoint_id: int | None,
    directory: Path | None,
    address: LogAddress,
    *,
    as_json: bool = False,
) -> ExitCode:
    """Print the value of a key as each partition has it; return FAILED if none has."""
    with _reader(reference, directory, address, checkpoint_id) as reader:
        declared = reader.store(store)
        wanted = from_text(declared.key, key)
        values = [value for _, value in reader.find(declared, wanted)]
    for value in values:
        _print(wanted, value) if as_json else print(to_text(value))
    if not values:
        print(f"grete: store {store} has no key {key!r}", file=sys.stderr)
    return ExitCode.DONE if values else ExitCode.FAILED


def state_scan(
    reference: str,
    store: str,
    prefix: str | None,
    limit: int,
    checkpoint_id: int | None,
    directory: Path | None,
    address: LogAddress,
    *,
    as_json: bool = False,
) -> None:
    """Print key and value of each entry."""
    with _reader(reference, directory, address, checkpoint_id) as reader:
        declared = reader.store(store)
        rows = reader.all(declared) if prefix is None else reader.prefix(declared, from_text(declared.key, prefix))
        for number, (key, value) in enumerate(rows):
            if number == limit:
                Console(stderr=True).print(f"… and more: --limit {10 * limit} shows the next ones", highlight=False)
                return
            _print(key, value) if as_json else print(f"{to_text(key)}\t{to_text(value)}")


def _print(key: object, value: object) -> None:
    print_json({"key": plain(key), "value": plain(value)})
