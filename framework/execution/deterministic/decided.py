"""The rows of input decisions: those that were read, and those that a replay reads again and proves (D2)."""

from collections import deque
from collections.abc import Sequence

from grete.core.actions import ProcessExternal
from grete.errors import Halted, OffsetOutOfRange
from grete.halts import HaltCode
from grete.logs.partition_reader import batch
from grete.ports import Log, LogRow
from grete.protocol.frames import digest_rows
from grete.protocol.ids import TopicPartition
from grete.settings import Settings

_NAMED = 5  # missing offsets that a message names


def digest_of(rows: Sequence[LogRow]) -> int:
    """Return the digest of rows that an input decision takes."""
    offsets, _, timestamps, keys, values, headers = zip(*rows, strict=True)
    return digest_rows(offsets, timestamps, keys, values, headers)


class RowsRead:
    """Rows of external inputs, in order: from their read to the end of the code's work on the decision over them."""

    def __init__(self) -> None:
        self._ahead: deque[tuple[TopicPartition, list[LogRow]]] = deque()  # their decision is not yet made
        self._taken: tuple[TopicPartition, int] | None = None  # rows, how many, of the decision that is processed

    def add(self, partition: TopicPartition, rows: list[LogRow]) -> None:
        """Note rows that the core is asked to decide on."""
        self._ahead.append((partition, rows))

    def take(self, decision: ProcessExternal) -> list[LogRow]:
        """Return the rows of the decision, which are the next ones."""
        partition, rows = self._ahead.popleft()
        assert (partition, rows[0].offset, len(rows)) == (decision.partition, decision.first_offset, decision.count)
        self._taken = partition, len(rows)
        return rows

    def end(self) -> tuple[TopicPartition, int] | None:
        """Return the partition and the number of the rows that were taken last, and forget them; None: there are none.

        The code has done with them, or a checkpoint closes and what it left of them is read again.
        """
        taken, self._taken = self._taken, None
        return taken


class DecidedRows:
    """The external inputs of one task while it replays. Rows that were read ahead wait for the next decisions."""

    def __init__(self, name: str, log: Log, settings: Settings) -> None:
        """``name``: of the task, for errors."""
        self._name = name
        self._log = log
        self._settings = settings
        self._ahead: dict[TopicPartition, deque[LogRow]] = {}

    def clear(self) -> None:
        """Forget what was read ahead: the replay is over."""
        self._ahead.clear()

    def read(self, decision: ProcessExternal) -> list[LogRow]:
        """Return the rows of an input decision. Raises Halted unless the log holds exactly those that it took.

        An input decision of format version 1 says only the first offset and the count: the others cannot be compared.
        """
        if decision.rows is None:
            return self._read_unproved(decision)
        last = decision.rows.last_offset
        ahead = self._ahead_from(decision)
        while not ahead or ahead[-1].offset < last:
            rows = self._read_on(decision, ahead)
            if not rows:
                break
            ahead.extend(rows)
        found: list[LogRow] = []
        while ahead and ahead[0].offset <= last:
            found.append(ahead.popleft())
        if len(found) != decision.count or digest_of(found) != decision.rows.digest:
            raise self._differ(decision, last, [row.offset for row in found])
        return found

    def _read_unproved(self, decision: ProcessExternal) -> list[LogRow]:
        ahead = self._ahead_from(decision)
        while len(ahead) < decision.count:
            rows = self._read_on(decision, ahead)
            if not rows:
                raise self._gone(decision)
            ahead.extend(rows)
        if ahead[0].offset != decision.first_offset:
            raise self._gone(decision)
        return [ahead.popleft() for _ in range(decision.count)]

    def _ahead_from(self, decision: ProcessExternal) -> deque[LogRow]:
        ahead = self._ahead.setdefault(decision.partition, deque())
        while ahead and ahead[0].offset < decision.first_offset:
            ahead.popleft()
        return ahead

    def _read_on(self, decision: ProcessExternal, ahead: deque[LogRow]) -> list[LogRow]:
        position = ahead[-1].offset + 1 if ahead else decision.first_offset
        try:
            return batch(self._log, decision.partition, position, self._settings.batch_bytes_max)
        except OffsetOutOfRange as error:
            raise self._gone(decision) from error

    def _gone(self, decision: ProcessExternal) -> Halted:
        start = self._log.bounds(decision.partition)[0]
        if start > decision.first_offset:
            found = f"it begins at offset {start} now: its retention, or a deletion, has removed what was before"
        else:
            found = "it does not hold them: it was compacted, or records were deleted from it"
        return self._halted(decision, found)

    def _differ(self, decision: ProcessExternal, last: int, found: Sequence[int]) -> Halted:
        missing = decision.count - len(found)
        if missing <= 0:
            return self._halted(decision, "it holds others there: it was rewritten, or deleted and made again")
        named = ""
        if last - decision.first_offset + 1 == decision.count:  # without gaps, so the offsets are known
            gone = sorted({*range(decision.first_offset, last + 1)} - {*found})
            rest = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
            named = f" (offsets {', '.join(map(str, gone[:_NAMED]))}{rest})"
        text = f"{missing} of them{named} are gone: it was compacted, its retention expired, or records were deleted"
        return self._halted(decision, text)

    def _halted(self, decision: ProcessExternal, found: str) -> Halted:
        partition, first = decision.partition, decision.first_offset
        to = "" if decision.rows is None else f" to {decision.rows.last_offset}"
        return Halted(
            f"{self._name}: {decision.count} records of {partition}, from offset {first}{to}, were taken in after the "
            f"last commit and must be read again, but the topic has changed: {found}. Outputs made of them may be "
            "visible already, so the task cannot go on without them. Restore the records; or start the job under "
            f"another name, after setting cleanup.policy=delete for {partition.topic} and a retention.ms far above "
            f"checkpoint_interval_ms = {self._settings.checkpoint_interval_ms}",
            task=self._name,
            partition=partition,
            offset=first,
            code=HaltCode.INPUT_CHANGED,
        )
