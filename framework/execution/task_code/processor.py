"""Runs one task's code over its overlay, a frame or a poll batch at a time: the Runner of the task's driver."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.tasks.context import Context
from grete.api.tasks.methods import run_now
from grete.api.tasks.task import Task
from grete.api.topics.topic import Topic
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Topology
from grete.errors import Halted, SerdeError, TaskError
from grete.execution.calls.binding import bind_calls, due_among, in_place, in_turn, records_of
from grete.execution.calls.effects import IsolatedStore
from grete.execution.calls.loop import awaiting_loop
from grete.execution.calls.ports import Caller, InFlight
from grete.execution.records.trace_context import NoTracing
from grete.execution.records.user_traceback import user_line
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import MakeSinks, sinks_of
from grete.execution.task_code.binding import TaskEntries, bind_store, bound, expiring
from grete.execution.task_code.commit_requests import CommitRequests
from grete.execution.task_code.deduplication import deduplicators_of
from grete.execution.task_code.failures import refuser
from grete.execution.task_code.firing import Firing
from grete.execution.task_code.outputs import Outputs
from grete.execution.task_code.own_entries import OwnEntries
from grete.execution.task_code.ports import DueByTime, TaskTracing
from grete.execution.task_code.process_loops import Loop, compile_loop
from grete.execution.task_code.record_times import silent_inputs, with_times
from grete.execution.task_code.site import RecordClock, Site
from grete.execution.task_code.store_pins import StorePins
from grete.execution.task_code.task_time import TaskTime, time_told
from grete.execution.timing.event_time import BEFORE_ALL, OUTSIDE, TimeSource, event_time_of
from grete.execution.timing.reserved_stores import META, OUTBOX, STREAM_TIME, TIMERS, TURN
from grete.execution.timing.timers import TimerQueue
from grete.halts import HaltCode
from grete.ports import ExternalRecord, LogRow
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay

CheckKeys = Callable[[TopicPartition, Sequence[int], Sequence[bytes | None]], None]  # partition, offsets, keys


class Processor:
    """One task. ``reset`` comes first, once the state is restored, and again after each rollback.

    Errors of user code and serdes come out as TaskError naming stage, partition, topic, offset and index, or go to the
    input's dead-letter topic. Event time, timers, turns and the outbox are state in reserved stores.
    """

    def __init__(
        self,
        stage: StageGraph,
        topology: Topology,
        partition: int,
        overlay: Overlay,
        outputs: Outputs,
        settings: Settings,
        *,
        executor: Executor | None = None,
        sinks: MakeSinks = sinks_of,
        clock: RecordClock | None = None,
        context: Context | None = None,
        early_us: Callable[[], int] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """``executor`` runs what the outbox does to its ``sinks``; by default at once. ``caller`` makes calls.

        ``context`` is the task's ``ctx``. Deterministic mode: ``clock`` is at a record before that is processed.
        ``early_us`` returns the logical time of an output that goes to its sink ahead of the commit.
        """
        self.check_keys: CheckKeys | None = None  # of external inputs, before they are processed; set by assemble
        self.tracing: TaskTracing = NoTracing()  # set by assemble
        self._stage, self._partition = stage, partition
        self._overlay, self._outputs = overlay, outputs
        self._where, self._entries = f"stage {stage.name}, partition {partition}", OwnEntries(overlay)
        self._pins, self._timers = StorePins(stage, self._where, overlay.store(META)), TimerQueue(overlay.store(TIMERS))
        self._records = records_of(stage, caller, context, lambda: self._timers.now)
        self._context = Context() if context is None else context
        self._context.tell_event_time = time_told(stage, self._timers, self._records)
        self.requests = CommitRequests()
        self._context.ask_commit = in_turn(self._records, self.requests.ask)
        task = f"{stage.name}-{partition}"
        self._outbox = Outbox((topology.job, task), overlay.store(OUTBOX), settings, executor, sinks, early_us)
        self._applied = {name: o.target for name, o in stage.outputs.items() if not isinstance(o.target, Topic)}
        self._inputs = stage.inputs_by_log_topic(topology)
        self._task: Task | None = None
        self._deduplicators = deduplicators_of(stage, overlay, self._timers, self._entries.floors)  # by topic
        self._loops: dict[str, Loop] = {}
        time = event_time_of(wire(topology, stage.ordinal, partition), silent_inputs(stage))
        self._site = Site(
            stage.name,
            partition,
            overlay,
            outputs,
            self._outbox,
            self._timers,
            (lambda: self._firing.fire()) if stage.goes_by_time else None,  # noqa: PLW0108  # made below
            *(time, self._context.now, clock),
        )
        self._firing = Firing(stage, self._site, self._entries.floors)
        self._time = None if time is None else TaskTime(time, stage, self._site, self._firing, self.then)
        self.wall = self._firing.wall
        self.due: DueByTime | None = due_among(self._records, self._time if stage.goes_by_time else None)

    def reset(self) -> None:
        """Make a new task instance over the state as it is now; drop what was collected.

        Raises ConfigError if the state belongs to other store declarations or a table's url is unusable, TaskError if
        the task's ``init`` fails.
        """
        if self._task is not None:
            self.close()
        self._pins.check()
        self.requests.forget()
        self._outputs.clear()
        self._outbox.reload(self._applied)
        self._entries.reload()
        self._timers.reload(self._entries.number(STREAM_TIME, BEFORE_ALL))
        if self._time is not None:
            self._time.load(self._entries.get)
        self._outputs.turn = self._entries.number(TURN, 0)
        self._outputs.timestamp = self._timers.now  # of what ``init`` puts
        self._task = self._call("the class", self._stage.task)
        self._bind_state(self._task)
        self._call("init", partial(run_now, "init", self._task.init))
        self._firing.begin()
        self._bind_outputs(self._task)
        self._loops = self._compile(self._task)

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
        loop = self._loops[batch.source.topic]
        if self._time is None:
            loop(batch)
        else:
            self._time.around((producer, batch.source), partial(loop, batch))

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all records so far: at once, unless some of those are in flight."""
        if self._records is None:
            step()
        else:
            self._records.then(step)

    def refuse(self, batch: RecordBatch, reason: str) -> None:
        """Let the input's error policy have one row of history that is no record at all. Raises TaskError: "fail"."""
        refuse = refuser(self._site, self._inputs[batch.source.topic])
        self.then(partial(refuse, batch, 0, SerdeError(reason)))

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> int:
        """Process rows of an external topic; return how many: the others wait for timers that are left (E10)."""
        self._site.reading.left = 0
        if rows:
            offsets, _, timestamps, keys, values, headers = zip(*rows, strict=True)
            if self.check_keys is not None:
                self.check_keys(partition, offsets, keys)
            cells = headers if any(headers) else None
            self.process_batch(OUTSIDE, RecordBatch(keys, values, timestamps, cells, source=partition, offset=offsets))
        return len(rows) - self._site.reading.left

    def input_is_idle(self, partition: TopicPartition, *, ended: bool = False) -> None:
        """Note that nothing comes from an external partition for now, until its next record (E4); ``ended``: E7."""
        if self._time is not None:
            self._time.set_idle((OUTSIDE, partition), ended=ended)

    @property
    def watermark(self) -> tuple[int, bool] | None:
        """The watermark for consumers, and whether this task is idle; None: it has none, or timers are left (E10)."""
        return None if self._time is None or self._time.left else self._time.watermark

    def take_watermark(self, source: TimeSource, watermark: int, *, idle: bool) -> None:
        """Take what the producer of a channel has told of its event time, in ms (E2)."""
        if self._time is not None:
            self._time.watermarks([(source, watermark, idle)])

    def catch_up(self, now: int) -> None:
        """Let event time be at least ``now``, in ms, as it was in a live run over the same input."""
        if self._time is not None:
            self._time.catch_up(now)

    def fire_wall(self, now: int) -> None:
        """Let wall-clock timers fire that are due at ``now`` (ms)."""
        self._firing.fire_wall(now)

    def take_frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        """End a batch: return and forget the outputs to streams, (partition, records, frame body), by first use."""
        self._firing.settle()
        return self._outputs.take()

    def take_external(self) -> list[ExternalRecord]:
        """Return and forget the outputs to external topics."""
        return self._outputs.take_external()

    @property
    def external_bytes(self) -> int:
        """Bytes held back for sinks: records not taken yet, and an outbox whose checkpoint is not committed (A8)."""
        return self._outputs.external_bytes + self._outbox.bytes

    @property
    def progress(self) -> tuple[int, ...]:
        """Return counters that change with each batch, record and timer. Another thread reads them."""
        return self._site.reading.progress

    @property
    def counts(self) -> dict[str, int]:
        """Records in, records out and dead letters since the process started."""
        return self._site.counts

    @property
    def sent_to(self) -> Mapping[str, int]:
        """Topic of the log, or "sink:" and an Output's attribute → records sent since the process started."""
        return self._site.sent_to

    @property
    def waiting_timers(self) -> int:
        """Return the number of event-time timers, those of windows included, as of the last batch."""
        return self._timers.waiting

    @property
    def dropped(self) -> dict[str, int]:
        """Reason → what was dropped since the process started, in records; a rollback may count some again.

        "late": by windows. "duplicate": by inputs. "failed": records, timers and windows, by ``errors="drop"``.
        """
        duplicates = sum(each.duplicates for each in self._deduplicators.values())
        return {"late": self._firing.late, "duplicate": duplicates, "failed": self._site.failed.count}

    @property
    def last_failure(self) -> str:
        """The error of what was last dropped as failed, and where it was; empty: nothing was."""
        return self._site.failed.last

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write the part of the checkpoint's state that is kept in memory; nothing if nothing changed."""
        assert self._records is None or self._records.may_stay, "a checkpoint is closed with records in flight"
        self.requests.froze()
        self._outbox.close_checkpoint(checkpoint_id)
        self._firing.settle()
        self._pins.save()
        self._overlay.event_time = self._timers.now
        self._entries.save_event_time(self._timers.now)
        self._entries.save([(TURN, self._outputs.turn), *(() if self._time is None else self._time.save())])

    def after_commit(self) -> None:
        """Let committed outputs go to files and tables (S2), and tell the code what it has asked for."""
        self._outbox.committed()
        if self._task is not None:
            self._call("on_commit", partial(self.requests.committed, self._task, self._overlay, self._outputs))

    @property
    def outbox(self) -> Outbox:
        """The outbox of files and tables: the driver gives it time."""
        return self._outbox

    @property
    def in_flight(self) -> InFlight | None:
        """The records that wait for calls; None if ``process`` is a plain function."""
        return self._records

    def close(self) -> None:
        """Close the task instance. Raises TaskError if its ``close`` fails."""
        task, self._task = self._task, None
        if self._records is not None:
            self._records.clear()
        if task is not None:
            self._call("close", partial(run_now, "close", task.close))

    # --- Binding ---

    def _bind_state(self, task: Any) -> None:
        """Give the instance its stores, timers, windows, joins and context."""
        ids, records = self._stage.store_ids(), self._records
        for attribute, store in self._stage.stores.items():
            overlay = self._overlay.store(ids[store.name])
            entries: TaskEntries = expiring(store, overlay, self._timers, self._outputs, self._entries.floors)
            if records is not None:
                entries = IsolatedStore(ids[store.name], overlay, records)
            setattr(task, attribute, bind_store(store, entries))
        self._firing.bind(task, ids)
        if records is not None:
            bind_calls(self._stage, task, records)
        task.ctx = self._context

    def _bind_outputs(self, task: Task) -> None:
        """Give the instance its outputs: after ``init``, whose sends would be repeated at each start."""
        for attribute, output in self._stage.outputs.items():
            target = output.target
            send = self._outputs.sender(target) if isinstance(target, Topic) else self._outbox.sender(attribute, target)
            setattr(task, attribute, bound(output, send=self.tracing.sender(target, in_turn(self._records, send))))

    def _compile(self, task: Task) -> dict[str, Loop]:
        stage, loops = self._stage, dict[str, Loop]()
        process = self.tracing.around(stage, getattr(task, "process_batch" if stage.batch else "process"))
        for topic, declared in self._inputs.items():
            site = replace(self._site, out_of_order_ms=declared.out_of_order_ms)
            if self._records is not None:
                loop = awaiting_loop(site, declared, process, self._records)
            else:
                new = self._deduplicators.get(topic)
                call = process if new is None else new.around_batch(process) if stage.batch else new.around(process)
                loop = compile_loop(site, declared, call, batch=stage.batch)
            timed = with_times(site, declared, self._context, loop, in_place(self._records))
            loops[topic] = self.tracing.around_batch(timed)
        return loops

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        """Call user code outside of the loops. Raises TaskError naming the task."""
        try:
            return function()
        except Exception as error:
            text = f"{self._where}: {what} raised {type(error).__name__}: {error}{user_line(error)}"
            raise TaskError(text, stage=self._stage.name) from error
