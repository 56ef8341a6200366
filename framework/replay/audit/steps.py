"""The steps of an audit: the records of their results, and the port that recomputes a task's step."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from grete.batch.frames import Frame
from grete.batch.history_task import HistoryTask
from grete.batch.passes import HistoryPass
from grete.errors import FrameworkError
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.snapshots import Snapshot

SHOWN_MAX = 100  # differences of a step that are kept: a person can look at them
STEP_RECORDS_MAX = 100_000  # of a step, from outside; one checkpoint with more of them is a step, too

ValueOf = Callable[[int, bytes], bytes | None]  # store id, key → the live task's value at the end of a step


class WrongEntry(NamedTuple):
    """An entry that differs. None: it is not there."""

    stage: str
    partition: int
    store: str
    key: bytes
    found: bytes | None  # in the changelog
    expected: bytes | None  # made again


class ComparedStep(NamedTuple):
    """The result of one task's step: records made again, entries compared, and those that differ."""

    records: int
    keys: int
    differences: list[WrongEntry]


class AuditStep(NamedTuple):
    """One step of all tasks. ``wrong``: stage → how many entries differ; ``differences``: the first of them."""

    after: int  # checkpoint ids
    checkpoint_id: int
    records: int
    keys: int
    wrong: Counter[str]
    differences: list[WrongEntry]
    caught_up: bool  # it has compared all that was committed when it began, and can be


class RemadeMessage(NamedTuple):
    """A frame of a task's step, or a watermark. ``seq``: of its first record, or of the one behind it.

    ``start``: as of a Piece; in deterministic mode the logical time.
    """

    producer: int
    topic: str
    partition: int
    seq: int
    start: int
    message: bytes


class PlaceLost(FrameworkError):
    """An audit cannot go on with the next step, and takes the state of a later checkpoint as it is."""


class TaskSteps(Protocol):
    """The steps of one task over a copy of its state."""

    def task(self, log: LogReader, begin: int, before: Commit, after: Snapshot) -> HistoryTask:
        """Return the task of a step from the commit ``before``, at offset ``begin`` of the changelog."""

    def run(
        self,
        made: HistoryPass,
        log: LogReader,
        before: Commit,
        after: Commit,
        taken: Sequence[RemadeMessage],
        value_of: ValueOf,
    ) -> list[Frame]:
        """Make the step; return what is sent. ``taken``: of the tasks before it, maybe more."""

    def is_compared(self, store: int, key: bytes) -> bool:
        """Tell whether a difference in an entry is one."""


class AuditTally:
    """The results of all tasks' steps, added up."""

    def __init__(self) -> None:
        self.records = self.keys = 0
        self.wrong = Counter[str]()
        self.differences: list[WrongEntry] = []

    def add(self, stage: str, compared: ComparedStep) -> None:
        """Add what the step of a task has shown."""
        self.records, self.keys = self.records + compared.records, self.keys + compared.keys
        self.wrong[stage] += len(compared.differences)
        self.differences += compared.differences[: SHOWN_MAX - len(self.differences)]

    def told(self, after: int, checkpoint_id: int, *, caught_up: bool) -> AuditStep:
        """Return the step."""
        return AuditStep(after, checkpoint_id, self.records, self.keys, self.wrong, self.differences, caught_up)


def offsets(commit: Commit) -> dict[TopicPartition, int]:
    """Return the offset of the first record not included in a commit, by partition from outside."""
    return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in commit.external}


def records_between(before: Snapshot, after: Snapshot) -> int:
    """Return the number of offsets from outside between two commits of a task."""
    begins = offsets(before.commit)
    return sum(end - begins.get(partition, 0) for partition, end in offsets(after.commit).items())
