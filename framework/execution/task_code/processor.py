"""Runs one task's code over its overlay, a frame or a poll batch at a time: the Runner of the task's driver."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from grete.api.tasks.context import Context
from grete.api.topics.topic import Topic, TopicPattern
from grete.errors import Halted, SerdeError
from grete.execution.calls.binding import due_among, in_turn, records_of
from grete.execution.calls.flight import Records
from grete.execution.calls.ports import Caller
from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import share_of
from grete.execution.task_code.commit_requests import CommitRequests
from grete.execution.task_code.failures import output_refusers, refuser
from grete.execution.task_code.firing import Firing
from grete.execution.task_code.instance import Instance
from grete.execution.task_code.ports import DueByTime
from grete.execution.task_code.record_times import silent_inputs
from grete.execution.task_code.site import RecordClock, Site
from grete.execution.task_code.task_time import TaskTime, time_told
from grete.execution.timing.event_time import BEFORE_ALL, OUTSIDE, TimeSource, event_time_of
from grete.execution.timing.own_entries import OwnEntries, StorePins
from grete.execution.timing.reserved_stores import META, STREAM_TIME, TIMERS, TURN
from grete.execution.timing.timers import TimerQueue
from grete.halts import HaltCode
from grete.ports import ExternalRecord, LogRow
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay

CheckKeys = Callable[[TopicPartition, Sequence[int], Sequence[bytes | None]], None]  # partition, offsets, keys


class Processor:
    """One task. ``reset`` comes first, once the state is restored, and again after each rollback.

    Errors of user code and serdes come out as TaskError naming stage, partition, topic, offset and index, or go to the
    input's dead-letter topic. Event time, timers, turns and the outbox are state in reserved stores.
    """

    firing: Firing

    def __init__(
        self,
        task: JobTask,
        overlay: Overlay,
        outputs: Outputs,
        outbox: Outbox,
        *,
        clock: RecordClock | None = None,
        context: Context | None = None,
        caller: Caller | None = None,
    ) -> None:
        """``context`` is the task's ``ctx``. Deterministic mode: ``clock`` is at a record before that is processed.

        ``caller`` makes calls.
        """
        stage, timers = task.stage, TimerQueue(overlay.store(TIMERS))
        self.check_keys: CheckKeys | None = None  # of external inputs, before they are processed; set by assemble
        self.job_task, self.entries = task, OwnEntries(overlay)
        self._pins = StorePins(stage, task.where, overlay.store(META))
        self.records = records_of(stage, caller, context, lambda: timers.now)
        context = Context() if context is None else context
        context.tell_event_time = time_told(stage, timers, self.records)
        self.requests = CommitRequests()
        context.ask_commit = in_turn(self.records, self.requests.ask)
        time = event_time_of(task.wiring, silent_inputs(stage))
        fire = (lambda: self.firing.fire()) if stage.goes_by_time else None  # noqa: PLW0108  # made below
        self.site = Site(task, overlay, outputs, outbox, timers, fire, time, context.now, clock)
        self.firing = Firing(stage, self.site, self.entries.floors)
        self.time = None if time is None else TaskTime(time, stage, self.site, self.firing, self.then)
        self.due: DueByTime | None = due_among(self.records, self.time if stage.goes_by_time else None)
        self.instance = Instance(task, self.site, self.firing, self.entries.floors, context, self.records)

    def reset(self) -> None:
        """Make a new task instance over the state as it is now; drop what was collected.

        Raises ConfigError if the state belongs to other store declarations or a table's url is unusable, TaskError if
        the task's ``init`` fails.
        """
        site, outputs = self.site, self.site.outputs
        if self.instance.task is not None:
            self.close()
        self._pins.check()
        self.requests.forget()
        outputs.clear()
        declared = self.job_task.stage.outputs.items()
        site.outbox.refusals.by_target = output_refusers(site)
        tasks, inside = self.job_task.stage.partitions, (Topic, TopicPattern)
        to_sinks = {name: share_of(o.target, tasks) for name, o in declared if not isinstance(o.target, inside)}
        site.outbox.reload(to_sinks)
        self.entries.reload()
        site.timers.reload(self.entries.number(STREAM_TIME, BEFORE_ALL))
        if self.time is not None:
            self.time.load(self.entries.get)
        outputs.turn = self.entries.number(TURN, 0)
        outputs.timestamp = site.timers.now  # of what ``init`` puts
        self.instance.make()

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int = 0) -> None:
        """Process the records of a frame of a stream but for the first ``skip`` (A3), or a watermark (E2).

        Raises Halted on a damaged message.
        """
        try:
            header = decode_header(message)
            if header.type is MessageType.WATERMARK:
                mark = decode_watermark(message)
                self.take_watermark((header.producer, partition), mark.watermarks[-1], idle=mark.idle)
                return
            batch = decode_columns(message, partition, offset)
        except DecodeError as error:
            raise Halted(
                f"{partition} at offset {offset}: {error}: the log is damaged: restore it, or start the job under "
                "another name",
                partition=partition,
                offset=offset,
                code=HaltCode.STREAM_DAMAGED,
            ) from error
        if skip:
            batch = batch.after(skip)
        if batch.keys:
            self.process_batch(header.producer, batch)

    def process_batch(self, producer: int, batch: RecordBatch) -> None:
        """Process records of one source: a channel, or an external partition. There is at least one."""
        loop = self.instance.loops[batch.source.topic]
        if self.time is None:
            loop(batch)
        else:
            self.time.around((producer, batch.source), partial(loop, batch))

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all records so far: at once, unless some of those are in flight."""
        if self.records is None:
            step()
        else:
            self.records.then(step)

    def refuse(self, batch: RecordBatch, reason: str) -> None:
        """Let the input's error policy have one row of history that is no record at all. Raises TaskError: "fail"."""
        refuse = refuser(self.site, self.instance.inputs[batch.source.topic])
        self.then(partial(refuse, batch, 0, SerdeError(reason)))

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> int:
        """Process rows of an external topic; return how many: the others wait for timers that are left (E10)."""
        self.site.reading.left = 0
        if rows:
            offsets, _, timestamps, keys, values, headers = zip(*rows, strict=True)
            if self.check_keys is not None:
                self.check_keys(partition, offsets, keys)
            cells = headers if any(headers) else None
            self.process_batch(OUTSIDE, RecordBatch(keys, values, timestamps, cells, source=partition, offset=offsets))
        left = self.site.reading.left
        assert left < max(1, len(rows)), f"{partition}: none of {len(rows)} rows was processed"
        return len(rows) - left

    def input_is_idle(self, partition: TopicPartition, *, ended: bool = False) -> None:
        """Note that nothing comes from an external partition for now, until its next record (E4); ``ended``: E7."""
        if self.time is not None:
            self.time.set_idle((OUTSIDE, partition), ended=ended)

    @property
    def watermark(self) -> tuple[int, bool] | None:
        """The watermark for consumers, and whether this task is idle; None: it has none, or timers are left (E10)."""
        return None if self.time is None or self.time.left else self.time.watermark

    def take_watermark(self, source: TimeSource, watermark: int, *, idle: bool) -> None:
        """Take what the producer of a channel has told of its event time, in ms (E2)."""
        if self.time is not None:
            self.time.watermarks([(source, watermark, idle)])

    def catch_up(self, now: int) -> None:
        """Let event time be at least ``now``, in ms, as it was in a live run over the same input."""
        if self.time is not None:
            self.time.catch_up(now)

    def fire_wall(self, now: int) -> None:
        """Let wall-clock timers fire that are due at ``now`` (ms)."""
        self.firing.fire_wall(now)

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """End a batch: return and forget the outputs to streams, (partition, records, frame body), by first use."""
        self.firing.settle()
        return self.site.outputs.take()

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget the outputs to external topics."""
        return self.site.outputs.take_external()

    @property
    def external_bytes(self) -> int:
        """Bytes held back for sinks: records not taken yet, and an outbox whose checkpoint is not committed (A8)."""
        return self.site.outputs.external_bytes + self.site.outbox.bytes

    @property
    def at_work(self) -> tuple[Sequence[bytes | None], int] | None:
        """Return the keys of the batch under way, and where it is. Another thread reads them."""
        return self.site.reading.at_work

    @property
    def progress(self) -> tuple[int, ...]:
        """Return counters that change with each batch, record and timer. Another thread reads them."""
        return self.site.reading.progress

    @property
    def counts(self) -> dict[str, int]:
        """Records in, records out and dead letters since the process started."""
        return self.site.counts

    @property
    def sent_to(self) -> Mapping[str, int]:
        """Topic of the log, or "sink:" and an Output's attribute → records sent since the process started."""
        return self.site.sent_to

    @property
    def waiting_timers(self) -> int:
        """Return the number of event-time timers, those of windows included, as of the last batch."""
        return self.site.timers.waiting

    @property
    def dropped(self) -> dict[str, int]:
        """Reason → what was dropped since the process started, in records; a rollback may count some again.

        "late": by windows. "duplicate": by inputs. "failed": records, timers and windows, by ``errors="drop"``.
        """
        failed = self.site.failed.count
        return {"late": self.firing.late, "duplicate": self.instance.duplicates, "failed": failed}

    @property
    def last_failure(self) -> str:
        """The error of what was last dropped as failed, and where it was; empty: nothing was."""
        return self.site.failed.last

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write the part of the checkpoint's state that is kept in memory; nothing if nothing changed."""
        assert self.records is None or self.records.may_stay, "a checkpoint is closed with records in flight"
        self.site.outputs.check_invariants()
        self.requests.froze()
        self.site.outbox.close_checkpoint(checkpoint_id)
        self.firing.settle()
        self._pins.save()
        self.site.overlay.event_time = self.site.timers.now
        self.entries.save_event_time(self.site.timers.now)
        self.entries.save([(TURN, self.site.outputs.turn), *(() if self.time is None else self.time.save())])

    def after_commit(self) -> None:
        """Let committed outputs go to files and tables (S2), and tell the code what it has asked for."""
        self.site.outbox.committed()
        self.instance.tell_committed(self.requests)

    @property
    def wall(self) -> TimerQueue | None:
        """The wall-clock timers; None if the task declares none."""
        return self.firing.wall

    @property
    def outbox(self) -> Outbox:
        """The outbox of files and tables: the driver gives it time."""
        return self.site.outbox

    @property
    def in_flight(self) -> Records | None:
        """The records that wait for calls; None if ``process`` is a plain function."""
        return self.records

    def close(self) -> None:
        """Close the task instance. Raises TaskError if its ``close`` fails."""
        if self.records is not None:
            self.records.clear()
        self.instance.close()
