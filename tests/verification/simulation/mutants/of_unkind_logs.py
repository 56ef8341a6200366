"""Mistakes that show only where a log is unkind: offsets without a message, transactions, late reads (S1)."""

from dataclasses import replace
from typing import Any

from grete.core.changelog.ownership import Ownership
from grete.core.events import ChangelogAppended, ChangelogEnd
from grete.core.task_changelog import TaskChangelog
from grete.errors import Fenced, LogAway, OffsetOutOfRange
from grete.execution.changelog.own_changelog import OwnChangelog
from grete.execution.engine.aligned_mode import AlignedMode
from grete.execution.engine.driver import TaskDriver
from grete.logs.kafka.client import endings
from grete.logs.partition_reader import PartitionReader
from grete.ports import LogRow
from grete.protocol.changelog import ChangelogType
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.connection import SimLog
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings
from tests.verification.simulation.unkind import FOR_EVER_MS

_OVERLOOKED = (
    "halted",
    "restore",
    "ownership",
    "generation",
    "one commit",
    "order",
    "fenced",
    "rollback marker",
    "error",
)


def _writes_in_transactions(plan: Plan) -> bool:
    return any(map(plan.in_transactions, plan.wirings))


def _fetches(plan: Plan) -> bool:
    return plan.unkind.fetch_ms > 0


def _reads_holes(plan: Plan) -> bool:
    return plan.unkind.holes > 0


def _readable_late(plan: Plan) -> Plan:
    """Acknowledged messages may become readable late, and processes start all the time."""
    return full_of("crash", "zombie")(replace(plan, unkind=replace(plan.unkind, late=0.8)))


def _timed_out(plan: Plan) -> Plan:
    """Transactions that the broker has no patience with, of processes that are often frozen."""
    impatient = replace(plan, unkind=replace(plan.unkind, timeout_ms=2))
    return full_of("freeze", "slow partition")(impatient)


def _patient(plan: Plan) -> Plan:
    """Transactions that never time out, of processes that die all the time: their successors meet the living."""
    return full_of("crash", "zombie")(replace(plan, unkind=replace(plan.unkind, timeout_ms=FOR_EVER_MS)))


def _plain(plan: Plan) -> bool:
    return plan.aligned and not plan.unkind.transactions


def _shown_late(plan: Plan) -> Plan:
    """Changelogs of which a reader sees the end only some time later, and processes that start all the time."""
    lagging = replace(plan.unkind, lag=0.4, lag_ms=3 * plan.settings.checkpoint_interval_ms)
    return replace(full_of("crash", "zombie", "crash in a restore")(plan), unkind=lagging)


def _reads_ahead(plan: Plan) -> bool:
    return plan.unkind.reads_ahead and plan.aligned and bool(plan.topology.streams)


def _reads_streams(plan: Plan) -> bool:
    return plan.aligned and bool(plan.topology.streams)


def _trims_late(plan: Plan) -> Plan:
    """Changelogs that are trimmed soon and some time later, and processes that die one by one: a task has one alone."""
    settings = with_settings(plan, changelog_retention_ms=0, batch_bytes_max=1)
    knobs = replace(plan.knobs, rewrite_share=8.0, data_bytes=1, tail=1)
    unkind = replace(plan.unkind, trim_ms=8 * plan.settings.checkpoint_interval_ms)
    return full_of("crash in a restore")(replace(settings, knobs=knobs, unkind=unkind))


_claimed_twice = full_of("twin in a rollback", "crash", "twin in a rollback")
_away = full_of("outage", "crash")


@mutant(TaskChangelog, "appended", "ownership", "generation", "one commit", shows=_reads_streams, focus=_claimed_twice)
def equal_claim_overlooked(appended: Any) -> Any:
    """A claim of the same generation before the own claim of a rollback is not another's (C1, C6)."""

    def mistaken(self: TaskChangelog, event: ChangelogAppended) -> Any:
        ownership, verify = self.ownership, self.ownership.appended
        if self.appending is not ChangelogType.CLAIM:
            return appended(self, event)

        def lenient(offset: int, highest_own: int, trailing: int = 0) -> int | None:
            return verify(offset, highest_own + 1, trailing)

        ownership.appended = lenient
        try:
            return appended(self, event)
        finally:
            ownership.appended = verify

    return mistaken


@mutant(TaskDriver, "start", "halted", focus=_away)
def no_answer_is_an_empty_log(start: Any) -> Any:
    """A log that does not answer when a task starts is taken for one without messages (K3, decision 0011)."""

    def mistaken(self: TaskDriver, **given: Any) -> None:
        log = self.parts.io.log
        bounds = log.bounds

        def answered(partition: TopicPartition) -> tuple[int, int]:
            try:
                return bounds(partition)
            except LogAway:
                return 0, 0

        log.bounds = answered
        try:
            start(self, **given)
        finally:
            log.bounds = bounds

    return mistaken


@mutant(AlignedMode, "_external_batch", "position", shows=_reads_holes)
def records_counted_for_offsets(external_batch: Any) -> Any:
    """The position in an external input moves by the number of records, not behind the last one's offset (A2)."""

    def mistaken(self: AlignedMode, partition: TopicPartition, rows: list[LogRow]) -> None:
        core = self._parts.core
        before = core.external.position[partition]
        external_batch(self, partition, rows)
        core.external.position[partition] = before + len(rows)

    return mistaken


@mutant(Ownership, "settle", "halted", shows=_writes_in_transactions)
def mark_counted_twice(settle: Any) -> Any:
    """The mark behind a transaction is counted twice, so the next own message seems to be too early (C3, S1)."""
    return lambda self, offset, trailing=0: settle(self, offset, 2 * trailing)


@mutant(OwnChangelog, "appended", "halted", shows=_writes_in_transactions, focus=_readable_late)
def empty_read_is_the_end(_appended: Any) -> Any:
    """A read that shows nothing is the end, though the log has acknowledged a message behind it (C3)."""
    return lambda self, offset: None


@mutant(PartitionReader, "read", *_OVERLOOKED, shows=_plain, focus=_shown_late)
def lagging_read_is_the_end(read: Any) -> Any:
    """A read of a changelog that shows nothing is the end, whatever the bounds say (C3)."""

    def mistaken(self: PartitionReader, bytes_max: int = 1 << 20) -> Any:
        return read(self, bytes_max) or []

    return mistaken


@mutant(OwnChangelog, "read", *_OVERLOOKED, shows=_fetches)
def on_its_way_is_the_end(read: Any) -> Any:
    """A task that reads its changelog takes it for its end that nothing has been fetched yet (C3)."""

    def mistaken(self: OwnChangelog, *, starting: bool) -> Any:
        event, reader = read(self, starting=starting), self._reader
        if event is None and reader is not None:
            self._reader = None
            return ChangelogEnd(reader.position)
        return event

    return mistaken


@mutant(PartitionReader, "read", "halted", "restore", "store", "uncommitted", focus=_trims_late)
def trimmed_is_left_out(read: Any) -> Any:
    """A task that reads its changelog goes on behind what is trimmed meanwhile, and keeps what it has read (K2, R1)."""

    def mistaken(self: PartitionReader, bytes_max: int = 1 << 20) -> Any:
        try:
            return read(self, bytes_max)
        except OffsetOutOfRange:
            self.position = self._log.bounds(self.partition)[0]
            return read(self, bytes_max)

    return mistaken


@mutant(endings, "may_come_again", "sink", "output", "exactly once", "lost", shows=_writes_in_transactions)
def epoch_kept_after_a_repeat(_may_come_again: Any) -> Any:
    """An end of a transaction that may have been asked for twice is followed by no new epoch (S1)."""
    return lambda seconds: False


@mutant(Ownership, "refused", "fenced", shows=_writes_in_transactions, focus=_timed_out)
def refused_is_fenced(_refused: Any) -> Any:
    """A task whose message the log has refused takes it that another process has claimed it (C5)."""

    def mistaken(self: Ownership, highest_own: int) -> int:
        raise Fenced(f"{self.changelog}: generation {highest_own} was refused")

    return mistaken


@mutant(endings, "outcome", "exactly once", "sink", "output", shows=_writes_in_transactions, focus=_patient)
def claim_overlooked_by_a_new_epoch(_outcome: Any) -> Any:
    """A refused process takes the transactional id back, though another has claimed the task meanwhile (S1, C4)."""
    return lambda own, found: endings.TransactionOutcome.ABSENT


@mutant(
    AlignedMode, "forget_read", "halted", "lost", "duplicate", "rolled back", "closure", "ahead", shows=_reads_streams
)
def read_before_a_seek(_forget_read: Any) -> Any:
    """A task that goes back first takes what it had read before (R4, A5)."""
    return lambda self, partition: None


@mutant(SimLog, "read", "halted", "lost", "seq", "liveness", shows=_reads_ahead)
def fetched_before_a_seek(read: Any) -> Any:
    """A client that is to read from elsewhere first hands out what it had fetched before (R4, A5)."""

    def mistaken(self: SimLog, partition: Any, offset: int, max_bytes: int) -> Any:
        return read(self, partition, self._asked[partition] if self._ahead.get(partition) else offset, max_bytes)

    return mistaken
