"""The driver's port to user code: run it over frames and rows, and hand over its outputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from grete.api.jobs.graph import StageGraph
from grete.execution.calls.flight import Records
from grete.execution.sinks.outbox import Outbox
from grete.execution.task_code.commit_requests import CommitRequests
from grete.execution.timing.timers import TimerQueue
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch


class TaskTracing(Protocol):
    """Carries trace contexts from records to what a task sends (grete.execution.engine.tracing)."""

    def around(self, stage: StageGraph, process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``process``, with the record's context current while its code runs."""

    def around_batch(self, loop: Callable[[RecordBatch], None]) -> Callable[[RecordBatch], None]:
        """Return ``loop`` with a span for each batch that has sampled records."""

    def sender(self, target: object, send: Callable[..., None]) -> Callable[..., None]:
        """Return ``send``, which gives each output the context of the record whose code sends it."""


class CommitTracing(Protocol):
    """Tells the spans of commits (grete.execution.engine.tracing)."""

    def moved(self, checkpoint_id: int | None, committed: int) -> None:
        """Note the checkpoint whose commit is on its way, None: it has ended; and which one was committed last."""


class DueByTime(Protocol):
    """Fires timers of event time (grete.execution.task_code.task_time)."""

    @property
    def left(self) -> bool:
        """Whether timers are left that come before the next record, and before what consumers are told (E10)."""

    def by_slices(self, *, turns: bool = True) -> None:
        """Let no call fire more of them than a slice has; nor, with ``turns``, the turn of a record in flight."""

    def fire_slice(self) -> None:
        """Let the next slice of them fire. Raises TimerError."""


class Runner(Protocol):
    """Runs the user's task over the overlay; grete.execution.task_code.processor is the real one."""

    requests: CommitRequests  # what the code asks for by ctx.commit

    def reset(self) -> None:
        """Make a new task instance over the committed state; drop collected outputs."""

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int) -> None:
        """Process the records of a frame but for the first ``skip``, or take a watermark (E2)."""

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> int:
        """Process rows of an external input; return how many: the others wait for timers that are left (E10)."""

    @property
    def due(self) -> DueByTime | None:
        """The timers of event time that are due; None: there never are any, or they have their turn among records."""

    def input_is_idle(self, partition: TopicPartition, *, ended: bool = False) -> None:
        """Note that nothing comes from an external partition for now (E4); ``ended``: as the job is drained (E7)."""

    @property
    def watermark(self) -> tuple[int, bool] | None:
        """The event time to tell consumers, and whether the task is idle (E2); None: it has none to tell now."""

    @property
    def at_work(self) -> tuple[Sequence[bytes | None], int] | None:
        """The keys of the batch under way, and the index of the record that is processed; None: there is none."""

    @property
    def progress(self) -> tuple[int, ...]:
        """Return counters that change with each batch, record and timer. Another thread reads them."""

    @property
    def counts(self) -> dict[str, int]:
        """Records in, records out and dead letters since the process started."""

    @property
    def sent_to(self) -> Mapping[str, int]:
        """Topic of the log, or "sink:" and an Output's attribute → records sent since the process started."""

    @property
    def waiting_timers(self) -> int:
        """Return the number of event-time timers that are set, those of windows included."""

    @property
    def wall(self) -> TimerQueue | None:
        """The wall-clock timers; None if the task declares none."""

    def fire_wall(self, now: int) -> None:
        """Let wall-clock timers fire that are due at ``now`` (ms), in order: some of them, if they are many."""

    @property
    def dropped(self) -> dict[str, int]:
        """Reason ("late", "duplicate", "failed") → how much was dropped since the process started."""

    @property
    def last_failure(self) -> str:
        """The error of what was last dropped as failed; empty: nothing was."""

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Return and forget the collected outputs to streams: (partition, records, frame body)."""

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget the collected outputs to topics outside of the job."""

    @property
    def external_bytes(self) -> int:
        """Size of the collected outputs to topics outside of the job."""

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write what belongs to the state (event time, the outbox) into the open write batch."""

    def after_commit(self) -> None:
        """Let the outbox apply the checkpoint: it is committed and in the store (S2)."""

    @property
    def outbox(self) -> Outbox | None:
        """The outputs that wait for their sinks; None if there never are any."""

    @property
    def in_flight(self) -> Records | None:
        """The records that wait for calls; None if the code makes none."""

    def close(self) -> None:
        """Close the task's code: it has come to a graceful end."""


class SpillStore(Protocol):
    """Holds payloads of early frames that do not fit in memory (A5): a cache, emptied at start and rollback."""

    def put(self, payload: bytes) -> tuple[int, int]:
        """Write a payload, return where it is."""

    def get(self, place: tuple[int, int]) -> bytes:
        """Read a payload back. Raises StoreCorrupted if it is not what was written."""

    def clear(self) -> None:
        """Forget everything."""
