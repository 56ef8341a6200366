"""The start of a task: what it has sent before, and its store as of the last valid commit (C1, R1)."""

from collections import Counter

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import TaskWiring
from grete.errors import OffsetOutOfRange
from grete.execution.changelog.changelog_writer import apply_segment, find_outcome
from grete.execution.changelog.own_changelog import OwnChangelog
from grete.logs.partition_reader import rows
from grete.ports import Log, LogReader, StateStore
from grete.protocol.changelog_position import encode_changelog_position
from grete.protocol.control import PROGRESS, progress_of
from grete.protocol.envelope import decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition
from grete.stores.overlay.overlay import Overlay


class Restorer:
    """The restorer of one task. In the ``counters`` of its driver are wipes, restored records, restores and redos."""

    def __init__(
        self,
        changelog: OwnChangelog,
        log: Log,
        store: StateStore,
        overlay: Overlay,
        wiring: TaskWiring,
        counters: Counter[str],
    ) -> None:
        self._changelog, self._log, self._store, self._overlay = changelog, log, store, overlay
        self._wiring, self._counters = wiring, counters

    def perform(self, action: do.Action, *, restored: bool) -> on.Event | None:
        """Perform one action of a start; return the event that answers it, None if it needs no answer.

        ``restored``: the whole state came from the changelog; else the store was up to date but for its last commit.
        Raises Halted: a message of the changelog is damaged.
        """
        match action:
            case do.ReadChangelog(offset):
                self._changelog.begin(offset)
            case do.WipeStore():
                self._overlay.drop_all()
                self._store.wipe()
                self._counters["wipes"] += 1
            case do.ApplySegment():
                name = str(self._wiring.changelog)
                for message in action.messages:
                    self._counters["restored records"] += apply_segment(name, self._store, message)
            case do.FindOutcome(bulk_write_id):
                counts = find_outcome(self._log, self._wiring.outcome_changelog, bulk_write_id)
                return on.OutcomeFound(bulk_write_id, counts)
            case do.WriteChangelogPosition(changelog_position):
                self._store.write((), encode_changelog_position(changelog_position))
                self._counters["restores" if restored else "redos"] += 1
            case _:
                raise AssertionError(f"no driver for {action}")
        return None


def sent_before(log: LogReader, wiring: TaskWiring, *, aligned: bool) -> TopicPartition | None:
    """Return a partition into which the task has sent; None: there is none, or nothing of it is left.

    A trimmed one counts if its consumer commits after the markers of all its producers (A6), or has this one alone.
    """
    aligns = {*wiring.outputs} - wiring.merged_outputs if aligned and not wiring.deterministic else set()
    bounds = log.all_bounds(wiring.outputs)
    for partition in wiring.outputs:
        while True:
            start, end = bounds[partition]
            if start > 0 and (wiring.tasks == 1 or partition in aligns):
                return partition
            try:
                if any(_is_of(wiring.producer, row.value or b"") for row in rows(log, partition, start, end)):
                    return partition
                break
            except OffsetOutOfRange:
                bounds |= log.all_bounds([partition])  # its consumer has trimmed it meanwhile: look at what is left
    return None


def _is_of(producer: int, message: bytes) -> bool:
    try:
        header = decode_header(message)
        headers = [each.header for each in progress_of(header.type, message)] if header.type in PROGRESS else [header]
        return any(each.producer == producer for each in headers)
    except DecodeError:
        return False  # its consumer says what it thinks of it
