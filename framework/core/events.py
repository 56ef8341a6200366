"""Events of a task. The driver reports them, the core answers with actions. Times are the driver's."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from grete.errors import FrameworkError
from grete.ports import LogRow
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallsNote


class Start(Struct, frozen=True):
    """The process is up. ``nonce``: 16 random bytes; ``bounds``: (start, end) offsets of each partition it touches.

    ``sent``: a stream into which the task has sent before the changelog's bounds were asked, looked for if that seemed
    to be empty.
    """

    mono_ms: int
    nonce: bytes
    host: str
    pid: int
    wall_ms: int
    changelog_position: ChangelogPosition | None
    bounds: dict[TopicPartition, tuple[int, int]]
    sent: TopicPartition | None = None


class ChangelogRow(Struct, frozen=True):
    """One message of the own changelog, read on request of ReadChangelog."""

    offset: int
    append_time_ms: int
    value: bytes


class ChangelogEnd(Struct, frozen=True):
    """The changelog was read up to its end as of the request; the next message will have this offset."""

    offset: int


class OutcomeFound(Struct, frozen=True):
    """The answer to FindOutcome: whether the bulk write counts; None: it is in doubt."""

    bulk_write_id: str
    counts: bool | None


class InputGone(Struct, frozen=True):
    """The task cannot go on: a newer generation is at work, or else it is ``error`` (C5).

    The log does not have what comes next of an input: trimmed, or lost. Or visible outputs are not those that were made
    again: a successor's, or those of a task that is not deterministic (D5).
    """

    error: FrameworkError


class ChangelogAppended(Struct, frozen=True):
    """The answer to AppendChangelog: the message is in the changelog, or another task's claim refused it.

    ``trailing`` offsets behind it are the log's own, so the next own message has an offset that much higher (S1, C3).
    """

    offset: int
    append_time_ms: int
    mono_ms: int
    fenced: bool
    trailing: int = 0
    mono_us: int = 0


class Acked(Struct, frozen=True):
    """Every send with a token up to ``token`` is known to have been delivered."""

    token: int


class Message(Struct, frozen=True):
    """The next message of an internal input partition, whole."""

    partition: TopicPartition
    offset: int
    append_time_ms: int
    value: bytes


class Messages(Struct, frozen=True):
    """The next messages of an internal input partition. The core takes some, one at least; its position says which.

    ``rows`` need stay as they are only as long as the core is at it.
    """

    partition: TopicPartition
    rows: Sequence[LogRow]


class ExternalProcessed(Struct, frozen=True):
    """Records of an external input up to ``next_offset`` were processed (or there were none); ``ended``: none is left.

    ``open_bytes`` as in Processed.
    """

    partition: TopicPartition
    next_offset: int
    ended: bool
    open_bytes: int = 0


class Processed(Struct, frozen=True):
    """The frame of the last Process action was processed; the open write batch holds about ``open_bytes``."""

    open_bytes: int


class Fired(Struct, frozen=True):
    """Timers have fired that were due by event time. ``left``: others come before all that would be processed (E10).

    ``waits``: frames that were taken for processed wait for those, so the checkpoint is not to be closed now.
    ``open_bytes`` as in Processed.
    """

    open_bytes: int
    left: bool
    waits: bool = False


class OutputFrames(Struct, frozen=True):
    """The answer to FlushOutputs, or a batch's end: bodies of frames, as (partition, number of records, body).

    ``watermark``: the task's event time in ms, and whether all of its sources are idle, to be sent behind the frames
    (E2); None: it is not to be sent now.
    """

    frames: Sequence[tuple[TopicPartition, int, bytes]]
    watermark: tuple[int, bool] | None = None


class InputRead(Struct, frozen=True):
    """Deterministic mode: all that was at hand was fed, or nothing is; what can go may go now."""


class ExternalBatch(Struct, frozen=True):
    """Deterministic mode: the driver holds ``count`` rows of an external input, to be decided on (D2).

    ``digest``: grete.protocol.frames.digest_rows of them.
    ``more``: behind them there are others, so an ExternalBatch or InputRead follows as soon as it is wanted.
    """

    partition: TopicPartition
    first_offset: int
    next_offset: int
    count: int
    mono_us: int
    digest: int
    more: bool = False


class InputIdle(Struct, frozen=True):
    """Deterministic mode: an external input was read to its end and has brought nothing for long enough (E4).

    ``ended``: or the job is drained, and nothing more is read of it (E7).
    """

    partition: TopicPartition
    mono_us: int
    ended: bool = False


class Advance(NamedTuple):
    """A task has reached event time ``watermark`` (ms) as of all up to logical time ``t`` µs; whether it is idle."""

    t: int
    watermark: int
    idle: bool


class Ran(Struct, frozen=True):
    """The answer to ProcessRecords, ProcessExternal and ProcessIdle; ``open_bytes`` as in Processed.

    ``frames``: as in OutputFrames. ``outputs``: how many records for the outside were collected, ``released``: of each
    external partition among them the last seq, and the digest up to it (D5). ``timer``: when the code has something to
    tell though nothing comes, in µs; ``wall``: and when a wall-clock timer fires (E8). ``next_offset``: after a replay,
    where to read on. ``advances``: of event time, for the consumers (E2). ``sink_t``: the logical time in µs of the
    last output that waits for a ReleaseToSinks; -1: none does. ``calls``: what calls have returned; all else waits
    until that is logged (D8). ``left``: timers are due that have not fired: they come before the rest of what was to be
    processed (E10). Of that, the first ``done`` rows, or batches, are processed; the rows are those before
    ``next_offset``. Once some of them have fired, it is answered again. ``done`` below 0: all have fired, and records
    with calls go on behind them.
    """

    open_bytes: int
    frames: Sequence[tuple[TopicPartition, int, bytes]] = ()
    outputs: int = 0
    released: Sequence[tuple[TopicPartition, tuple[int, int]]] = ()
    timer: int = 1 << 62
    next_offset: int = -1
    advances: Sequence[Advance] = ()
    sink_t: int = -1
    calls: Sequence[CallsNote] = ()
    wall: int = 1 << 62
    left: bool = False
    done: int = 0


class DataWritten(Struct, frozen=True):
    """The answer to WriteData: ``count`` messages were sent, and how far the rewrite is (K2).

    ``digest``: of all data messages of the checkpoint. ``more``: there is more to be sent.
    """

    count: int
    digest: int
    cursor: bytes
    round_done: bool
    more: bool = False


class Applied(Struct, frozen=True):
    """The frozen write batch and its changelog position are in the store."""


class Tick(Struct, frozen=True):
    """Time has passed; ``open_bytes`` as in Processed. ``observed``: a logical time that others wait for, or 0.

    ``asked``: the last checkpoint that a task holds much of, and asks to have closed (A9), or 0. ``requested``: the
    code of this task asks for a checkpoint.
    """

    mono_ms: int
    open_bytes: int = 0
    mono_us: int = 0
    observed: int = 0
    asked: int = 0
    requested: bool = False


class CheckpointObserved(Struct, frozen=True):
    """The greatest checkpoint of which a marker has reached a task of this process, or 0 (A1).

    ``sees_next``: such tasks have nothing else to do, so a later one will be told at once.
    """

    mono_ms: int
    checkpoint_id: int
    sees_next: bool


class Stop(Struct, frozen=True):
    """Finish gracefully (R6): commit once more if there is something to commit, then Exit."""


Event = (
    Start
    | ChangelogRow
    | ChangelogEnd
    | OutcomeFound
    | InputGone
    | ChangelogAppended
    | Acked
    | Message
    | Messages
    | ExternalProcessed
    | Processed
    | Fired
    | OutputFrames
    | InputRead
    | ExternalBatch
    | InputIdle
    | Ran
    | DataWritten
    | Applied
    | Tick
    | CheckpointObserved
    | Stop
)
