"""The results of a task's history: state is written to its changelog or compared with it, records are handed on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grete.api.jobs.graph import RESERVED_STORES
from grete.api.jobs.job import Job
from grete.batch.passes import LiveTime
from grete.execution.build import store_names
from grete.execution.calls.kept_results import is_kept
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.deterministic.outputs import AT, is_of_outputs, logical_time_of
from grete.execution.timing.floors import FLOOR
from grete.execution.timing.reserved_stores import EVENT_TIME, STREAM_TIME
from grete.job.directory import JobDirectory
from grete.protocol.changelog_position import ChangelogPosition
from grete.spark.backfill.plans import BackfilledTask, StagePlan
from grete.spark.backfill.run.batch_task import StateRow
from grete.spark.backfill.schema import STATE, batch
from grete.spark.spark_progress import ProgressSink
from grete.state.read.checkpoints.snapshots import Entries, Snapshot, contents, segments
from grete.state.read.live_entries import event_time_of
from grete.state.write.bulk.bulk_write_attempt import Attempt, BulkWrite
from grete.stores.overlay.expiring_store import horizon
from grete.stores.rocksdb.sst_snapshot import SstBuilder, SstFile, publish

_Difference = tuple[int, bytes, bytes | None, bytes | None]  # store id, key, found, expected

_META = RESERVED_STORES["_meta"]
_STATE_ROWS, _STATE_BYTES = 10_000, 4 << 20  # of one batch


def counted(report: BackfilledTask, state: Iterator[StateRow]) -> Iterator[StateRow]:
    """Count the keys that pass."""
    for report.keys, row in enumerate(state, 1):
        yield row


def _chunks(state: Iterator[StateRow]) -> Iterator[list[StateRow]]:
    """Yield the state in parts of a bounded size."""
    taken: list[StateRow] = []
    size = 0
    for row in state:
        taken.append(row)
        size += len(row[1]) + len(row[2])
        if len(taken) == _STATE_ROWS or size >= _STATE_BYTES:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


def write(
    plan: StagePlan,
    bulk_write: BulkWrite,
    job: Job,
    partition: int,
    number: int,
    state: Iterator[StateRow],
    report: BackfilledTask,
) -> None:
    """Write the state to the task's changelog, where every store starts empty, and as files for its worker."""
    stores, task = sorted(store_names(job.stages[plan.stage])), job.tasks_of(plan.stage).start + partition
    if plan.built:
        report.built = f"{plan.built}/{task}-{number}"
    builder = SstBuilder(Path(report.built)) if report.built else None
    log = plan.where.open_to_write()
    try:
        attempt = Attempt(log, bulk_write, task, number, stores)
        for taken in _chunks(state):
            columns = list(zip(*taken, strict=True))
            attempt.add(*columns)
            if builder is not None:
                builder.add(*columns)
        report.written = attempt.close()
        report.files = [] if builder is None else builder.close()
    finally:
        log.close()


def leave_files(
    job_directory: JobDirectory,
    task: str,
    stores: Mapping[int, str],
    changelog_position: ChangelogPosition,
    built: str,
    files: Sequence[SstFile],
    telling: ProgressSink,
) -> None:
    """Put the files that an attempt has built where the task's worker looks; a failure here does not harm its commit.

    ``built``: the folder in which they are; empty: there are none.
    """
    if not built:
        return
    try:
        publish(Path(built), job_directory.prebuilt(task), changelog_position, stores, files)
    except OSError as error:
        telling.say(f"{task}: its files cannot be put in place, so its worker will read the changelog: {error}")


def handed_on(task: int, state: Iterator[StateRow]) -> Iterator[Any]:
    """Yield the state as batches."""
    for taken in _chunks(state):
        stores, keys, values = (list(column) for column in zip(*taken, strict=True))
        yield batch(len(taken), kind=STATE, task=task, store=stores, key=keys, value=values)


class Recorded:
    """The state of a task as its changelog has it at a checkpoint."""

    def __init__(self, plan: StagePlan, snapshot: Snapshot, job: Job) -> None:
        """Read it."""
        stage = job.stages[plan.stage]
        stores = frozenset(store_names(stage)) - {RESERVED_STORES["_outbox"]}
        log = plan.where.open()
        try:
            self._found = contents(segments(log, snapshot), stores)
        finally:
            log.close()
        raw, _ = self._found[_META].get(STREAM_TIME, (None, 0))
        at, _ = self._found[_META].get(AT, (None, 0))
        self._reached = None if raw is None else event_time_of(raw), None if at is None else logical_time_of(at)
        least = horizon(event_time_of(raw))
        for store in stage.expiring_ids():  # when it is deleted depends on commits
            entries = self._found[store].items()
            self._found[store] = {key: cell for key, cell in entries if cell[0] is not None and cell[0] >= least}
        # which sources were idle depends on a clock; what came of it, event time, is compared; no rescale is run again
        self._left_out: Callable[[bytes, bytes | None], bool] = lambda key, _: key.startswith((EVENT_TIME, FLOOR))
        if stage.mode == "deterministic":
            self._left_out = _is_not_made_again
            if not plan.is_recorded:  # the logical times were others
                del self._found[_META]

    def reached(self, *, is_live: bool) -> LiveTime:
        """Return the task's position, as far as inputs do not tell it; ``is_live``: they have their logical times."""
        event_time_ms, logical_us = self._reached
        return LiveTime(None, logical_us) if is_live else LiveTime(event_time_ms)

    def differences(self, task: int, state: Iterator[StateRow]) -> Iterator[Any]:
        """Yield a row for each key that differs: ``value`` is the changelog's, ``headers`` what it should be."""
        wrong = _compared(self._found, state)
        return _rows(task, [row for row in wrong if row[0] != _META or not self._left_out(row[1], row[2])])


def _is_not_made_again(key: bytes, found: bytes | None) -> bool:
    """Tell whether an entry of a deterministic task is about what it has sent, or has still to tell or to use."""
    return is_kept(key) or is_of_outputs(key) or (found is not None and AnnouncedTime.is_due(key, found))


def _compared(found: dict[int, Entries], state: Iterator[StateRow]) -> list[_Difference]:
    wrong: list[_Difference] = []
    for store, key, value in state:
        if store in found:
            entry = found[store].pop(key, (None, 0))
            if entry[0] != value:
                wrong.append((store, key, entry[0], value))
    wrong += [
        (store, key, entry[0], None)
        for store, entries in found.items()
        for key, entry in entries.items()
        if entry[0] is not None
    ]
    return wrong


def _rows(task: int, wrong: list[_Difference]) -> Iterator[Any]:
    for begin in range(0, len(wrong), _STATE_ROWS):
        stores_, keys, values, expected = (
            list(column) for column in zip(*wrong[begin : begin + _STATE_ROWS], strict=True)
        )
        yield batch(len(keys), kind=STATE, task=task, store=stores_, key=keys, value=values, headers=expected)
