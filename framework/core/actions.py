"""The effects that a core asks for, with their order obligations. A driver performs them in the order of the list.

The last line of a docstring is for drivers and for tests/execution/test_order.py, which breaks each obligation once.
``Before``: what must be done, and answered, before this; ``After``: what only after it; ``Answer``: the event that
reports it. They are about the actions that the core has asked for: not every start wipes the store.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from grete.protocol.changelog import TakenRows
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch


class ReadChangelog(Struct, frozen=True):
    """Read the own changelog from ``offset`` to its present end: ChangelogRow for each message, then ChangelogEnd.

    The core asks for nothing else before. The rows before the task's own claim decide what is committed (C1, C2).

    Before: none. After: none. Answer: ChangelogRow, ChangelogEnd.
    """

    offset: int


class FindOutcome(Struct, frozen=True):
    """Look in the changelog of task (0, 0) for the valid outcome of a bulk write (1.8); answer OutcomeFound.

    Before: none. After: none. Answer: OutcomeFound.
    """

    bulk_write_id: str


class WipeStore(Struct, frozen=True):
    """Empty the local store: its changelog position is not a valid commit of this log (R1). Before any ApplySegment.

    Before: none. After: ApplySegment, WriteChangelogPosition. Answer: none.
    """


class ApplySegment(Struct, frozen=True):
    """Write these data messages of one valid commit to the store, in order; not the changelog position.

    ``offset`` is that of the commit.

    Before: WipeStore. After: WriteChangelogPosition. Answer: none.
    """

    messages: Sequence[bytes]
    offset: int


class WriteChangelogPosition(Struct, frozen=True):
    """Write the changelog position; after every ApplySegment is in the store.

    Before: WipeStore, ApplySegment. After: none. Answer: none.
    """

    changelog_position: ChangelogPosition


class AppendChangelog(Struct, frozen=True):
    """Append a claim, commit, input decision, time lease or output release, durably; answer ChangelogAppended.

    A commit: after everything sent before is acknowledged (A7). ``with_outputs``: what a sink held back for this
    checkpoint becomes visible with it, atomically (S1). ``before``: messages directly before it, covered by its
    answer. Deterministic mode: the oldest ``outputs`` pending outputs become visible with it (D5); without ``sync``
    it need not survive a power loss that takes all that was appended later, too.

    Before: Freeze, WriteData. After: Send, Produce, ApplyFrozen. Answer: ChangelogAppended.
    """

    value: bytes
    generation: int
    with_outputs: bool = False
    before: tuple[bytes, ...] = ()
    outputs: int = 0
    sync: bool = True


class Send(Struct, frozen=True):
    """Append a message to a partition of a stream; in order for each partition. Its token is acknowledged by Acked.

    Before: AppendChangelog, ApplyFrozen. After: WriteData, Exit. Answer: Acked.
    """

    token: int
    partition: TopicPartition
    value: bytes


class Produce(Struct, frozen=True):
    """Deterministic mode: append the oldest ``count`` pending outputs to the external topics (D5). Answer: as Send.

    Before: AppendChangelog. After: WriteData. Answer: Acked.
    """

    token: int
    count: int


class Announce(Struct, frozen=True):
    """Deterministic mode: tell the partitions of ``seqs`` that nothing up to ``t`` µs is still to come (D1).

    It waits for others of the process; a later one replaces it, and an end of the process may lose it.

    Before: none. After: none. Answer: none.
    """

    producer: int
    generation: int
    checkpoint_id: int
    t: int
    seqs: dict[TopicPartition, int]


class ReleaseToSinks(Struct, frozen=True):
    """Deterministic mode: what was made for files and tables up to logical time ``t`` µs may leave now (D5).

    All of that time is made, and no crash can change it: its input decisions are valid. It leaves beside the task.

    Before: none. After: none. Answer: none.
    """

    t: int


class Seek(Struct, frozen=True):
    """Read this input partition from ``offset`` on next; what was prefetched is discarded (R5).

    Before: none. After: Process. Answer: none.
    """

    partition: TopicPartition
    offset: int


class Spill(Struct, frozen=True):
    """Move the payload of an early frame to disk (A4); the core keeps only ``key``.

    Before: none. After: DropSpilled, Process. Answer: none.
    """

    key: int
    value: bytes


class DropSpilled(Struct, frozen=True):
    """Forget some spilled frames: they are rolled back.

    Before: Spill. After: none. Answer: none.
    """

    keys: tuple[int, ...]


class Process(Struct, frozen=True):
    """Run the task on one frame, then answer Processed. ``value`` is None for a frame that was spilled under ``key``.

    ``skip`` records at its head are known and left out. Outputs may be collected until FlushOutputs or the batch's end.

    Before: Seek, Spill, DropOpen, Freeze. After: FlushOutputs, Freeze. Answer: Processed.
    """

    partition: TopicPartition
    offset: int
    value: bytes | None
    key: int
    skip: int


class MergedWatermarks(NamedTuple):
    """The watermarks of logical time ``t`` µs, in their place among the records: behind all up to ``t`` (E2).

    ``marks``: of each channel, a producer id and a partition, that has one: event time in ms, and whether it is idle.
    """

    t: int
    marks: tuple[tuple[tuple[int, TopicPartition], int, bool], ...]


class ProcessRecords(Struct, frozen=True):
    """Deterministic mode: run the task on these records and watermarks in order, then answer Ran.

    Nothing at or below ``upto`` µs is still to come. There may be nothing to process: only time has passed.

    Before: Freeze. After: Freeze. Answer: Ran.
    """

    batches: Sequence[RecordBatch | MergedWatermarks]
    upto: int


class ProcessIdle(Struct, frozen=True):
    """Deterministic mode: from logical time ``t`` µs on take an external partition for idle (E4), or ended (E7).

    Before: none. After: none. Answer: Ran.
    """

    partition: TopicPartition
    t: int
    ended: bool = False


class ProcessExternal(Struct, frozen=True):
    """Deterministic mode: run the task on ``count`` rows, the i-th at logical time ``first_t`` + i µs; answer Ran (D2).

    They are those of the ExternalBatch, or with ``replay`` those of a predecessor, which must be read again. ``rows``
    proves which they were; None if its input decision does not say. ``last_t``: when the decision ends, if that is
    later than its last row: others that it had were taken by the next one (E10); -1: it is not.

    Before: Freeze. After: Freeze. Answer: Ran.
    """

    partition: TopicPartition
    first_offset: int
    count: int
    first_t: int
    replay: bool
    rows: TakenRows | None = None
    last_t: int = -1


class FlushOutputs(Struct, frozen=True):
    """Close all output frames and answer OutputFrames, at once and even if there is none; a Freeze may follow.

    Before: Process. After: Freeze. Answer: OutputFrames.
    """


class Freeze(Struct, frozen=True):
    """Make the open write batch immutable, put a fresh one on top (A8).

    What a sink holds back belongs to ``checkpoint_id`` now.

    Before: FlushOutputs, Process, ProcessRecords, ProcessExternal, ApplyFrozen. After: AppendChangelog, Process,
    ProcessRecords, ProcessExternal, WriteData. Answer: none.
    """

    checkpoint_id: int


class FreezePart(Struct, frozen=True):
    """Deterministic mode: make what is dirty so far immutable, to be sent ahead of the Freeze of its checkpoint (D5).

    Before: ApplyFrozen. After: none. Answer: none.
    """


class WriteData(Struct, frozen=True):
    """Send the next slice of the dirty keys of the frozen write batch and of the rewrite as data messages.

    Answer DataWritten. In turn with input: a large checkpoint stalls nothing (A8). After all outputs of the checkpoint
    are acknowledged, before the commit. ``first_seq``: ChangelogSeq of the first one.

    Before: Freeze, Send, Produce. After: AppendChangelog, ApplyFrozen. Answer: DataWritten.
    """

    generation: int
    first_seq: int
    cursor: bytes


class ApplyFrozen(Struct, frozen=True):
    """Write the frozen write batch to the store in chunks, the changelog position in the last (A7); answer Applied.

    After the commit is known to be valid (A9, C3), before its markers.

    Before: WriteData, AppendChangelog. After: Send, Freeze, FreezePart, DropOpen, Trim, Exit. Answer: Applied.
    """

    changelog_position: ChangelogPosition


class DropOpen(Struct, frozen=True):
    """Drop the open write batch, collected outputs and what a sink holds back; create the task object again (R4).

    Before: ApplyFrozen. After: Process. Answer: none.
    """


class ClearSpill(Struct, frozen=True):
    """Forget all spilled frames: the early buffer is a cache (A5).

    Before: none. After: none. Answer: none.
    """


class Trim(Struct, frozen=True):
    """Delete messages before ``offset``: after the commit that no longer needs them is valid and applied (K2, K3).

    Before: ApplyFrozen. After: none. Answer: none.
    """

    partition: TopicPartition
    offset: int


class Committed(Struct, frozen=True):
    """For the driver's counters: ``checkpoint_id`` is committed, applied and its markers are sent.

    Before: none. After: none. Answer: none.
    """

    checkpoint_id: int


class Exit(Struct, frozen=True):
    """The task has stopped gracefully (R6). A task that is fenced or halts raises an error instead (C5).

    Before: Send, ApplyFrozen. After: none. Answer: none.
    """

    reason: str


Action = (
    ReadChangelog
    | FindOutcome
    | WipeStore
    | ApplySegment
    | WriteChangelogPosition
    | AppendChangelog
    | Send
    | Produce
    | Announce
    | ReleaseToSinks
    | Seek
    | Spill
    | DropSpilled
    | Process
    | ProcessRecords
    | ProcessExternal
    | ProcessIdle
    | FlushOutputs
    | Freeze
    | FreezePart
    | WriteData
    | ApplyFrozen
    | DropOpen
    | ClearSpill
    | Trim
    | Committed
    | Exit
)
