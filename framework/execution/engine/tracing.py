"""Carries trace contexts from records to what a task sends, and tells spans: of records, sends, batches and commits.

With the setting ``tracing`` off nothing of this is imported. A record that is not sampled has its header handed on, and
no span.
"""

import time
from collections.abc import Coroutine, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from grete.api.jobs.graph import StageGraph
from grete.api.record import Record
from grete.api.topics.topic import Topic, TopicPattern
from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Topology
from grete.execution.records.encoding import SendFunction
from grete.execution.records.trace_context import (
    CURRENT,
    LINKS_MAX,
    RecordTrace,
    TraceContext,
    context_of,
    derived_id,
    is_sampled,
)
from grete.execution.task_code.process_loops import Loop, ProcessFunction
from grete.protocol.ids import split_producer_id
from grete.protocol.record_batch import RecordBatch
from grete.settings import Settings


class EndsSpan(Protocol):
    """The span of a record whose code waits for calls."""

    def end(self, error: BaseException | None) -> None:
        """End it, with the error that ended the code if there was one."""


class TellsSpans(Protocol):
    """The receiver of spans: OpenTelemetry (grete.execution.engine.spans), or none."""

    def begin(self, of: RecordTrace, record: Record[Any, Any]) -> EndsSpan | None:
        """Begin the span of a record."""

    def record(self, of: RecordTrace, record: Record[Any, Any]) -> AbstractContextManager[None]:
        """Let the span of a record be the current one while its code runs."""

    def sent(self, topic: str, parent: TraceContext, own: TraceContext) -> None:
        """Tell the span of an output."""

    def batch(self, batch: RecordBatch, records: Sequence[TraceContext], begun_ns: int) -> None:
        """Tell the span of a batch with sampled records."""

    def commit(self, task: str, checkpoint_id: int, own: TraceContext, parent: TraceContext, begun_ns: int) -> None:
        """Tell the span of a commit."""


class NoSpans:
    """No spans, for a replay of history: contexts stay as they were, and no span is exported twice."""

    def begin(self, of: RecordTrace, record: Record[Any, Any]) -> None:
        """Tell nothing."""

    def record(self, of: RecordTrace, record: Record[Any, Any]) -> AbstractContextManager[None]:
        """Tell nothing."""
        return nullcontext()

    def sent(self, topic: str, parent: TraceContext, own: TraceContext) -> None:
        """Tell nothing."""

    def batch(self, batch: RecordBatch, records: Sequence[TraceContext], begun_ns: int) -> None:
        """Tell nothing."""

    def commit(self, task: str, checkpoint_id: int, own: TraceContext, parent: TraceContext, begun_ns: int) -> None:
        """Tell nothing."""


class RecordTracing:
    """The trace contexts of one task."""

    def __init__(
        self, topology: Topology, stage: int, wiring: TaskWiring, settings: Settings, spans: TellsSpans
    ) -> None:
        self._job, self._task = topology.job.encode(), wiring.name.encode()
        self._outside = frozenset(topology.externals_of(stage))
        self._per_million = settings.traced_per_million
        self._spans = spans
        self._batch: list[TraceContext] | None = None  # the sampled records of the batch that is processed

    def around(self, stage: StageGraph, process: ProcessFunction) -> ProcessFunction:
        """Return ``process``, with the record's context current while its code runs; a batch has many contexts."""
        if stage.batch:
            return process
        return self._around_async(process) if stage.awaits else self._around(process)

    def _around(self, process: ProcessFunction) -> ProcessFunction:
        def traced(record: Record[Any, Any]) -> object:
            trace = self._begin(record)
            if trace is None:
                return process(record)
            CURRENT.trace = trace
            try:
                if not trace.own.sampled:
                    returned = process(record)
                else:
                    with self._spans.record(trace, record):
                        returned = process(record)
            finally:
                CURRENT.trace = None
            CURRENT.logged = None
            return returned

        return traced

    def _around_async(self, process: ProcessFunction) -> ProcessFunction:
        def traced(record: Record[Any, Any]) -> Any:
            trace = self._begin(record)
            code: Any = process(record)
            if trace is None:
                return code
            return _Steps(code, trace, self._spans.begin(trace, record) if trace.own.sampled else None)

        return traced

    def sender(self, target: object, send: SendFunction) -> SendFunction:
        """Return ``send``, which gives each output the context of the record whose code sends it; files have none."""
        if not isinstance(target, Topic | TopicPattern):
            return send
        spans, topic = self._spans, target.name if isinstance(target, Topic) else target.pattern

        def traced(key: Any, value: Any, *, headers: Any = (), **more: Any) -> None:
            trace = CURRENT.trace
            if trace is not None:
                headers, span = trace.outgoing(headers)
                if span is not None:
                    spans.sent(topic, trace.own, span)
            send(key, value, headers=headers, **more)

        return traced

    def around_batch(self, loop: Loop) -> Loop:
        """Return ``loop`` with a span for each batch that has sampled records; it links to the first of them."""

        def traced(batch: RecordBatch) -> None:
            links = self._batch = []
            begun_ns = time.time_ns()
            try:
                loop(batch)
            finally:
                self._batch = None
                if links:
                    self._spans.batch(batch, links, begun_ns)

        return traced

    def _begin(self, record: Record[Any, Any]) -> RecordTrace | None:
        """Return the trace of a record: that of its header, or of a source that samples it; None: it has none."""
        parent = context_of(record.headers) if record.headers else None
        if record.topic in self._outside:
            place: tuple[bytes, ...] = record.topic.encode(), b"%d" % record.partition, b"%d" % record.offset
            if parent is None:
                if not is_sampled(self._per_million, self._job, *place):
                    CURRENT.logged = None
                    return None
                parent = TraceContext(derived_id(self._job, *place, bits=128), 0, sampled=True)
        elif parent is None:
            CURRENT.logged = None
            return None
        else:
            place = ()  # what a task has sent has a span of its own
        if not parent.sampled:
            CURRENT.logged = parent
            return RecordTrace(parent, parent, record.headers)
        own = parent._replace(span_id=derived_id(b"%016x" % parent.span_id, self._job, self._task, *place))
        CURRENT.logged = own
        if self._batch is not None and len(self._batch) < LINKS_MAX:
            self._batch.append(own)
        return RecordTrace(parent, own, record.headers)


class _Steps(Coroutine[Any, Any, object]):
    """The code of an async process, with its record's context current while it runs and not while it waits."""

    def __init__(self, code: Coroutine[Any, Any, object], trace: RecordTrace, span: EndsSpan | None) -> None:
        self._code, self._trace, self._span = code, trace, span

    def send(self, value: Any) -> Any:
        """Run up to the next wait."""
        CURRENT.trace, CURRENT.logged = self._trace, self._trace.own
        try:
            waits = self._code.send(value)
        except BaseException as error:
            if self._span is not None:
                self._span.end(None if isinstance(error, StopIteration) else error)
            raise
        finally:
            CURRENT.trace = None
        CURRENT.logged = None
        return waits

    def throw(self, *args: Any) -> Any:
        """Raise where the code waits."""
        return self._code.throw(*args)

    def close(self) -> None:
        """End the code where it waits."""
        self._code.close()

    def __await__(self) -> Generator[Any, Any, object]:
        """Run as the code does."""
        return self._code.__await__()


class CommitSpans:
    """The spans of a task's commits. All tasks of the job have one trace for a checkpoint, without asking each other.

    The parent of a commit's span is that of the first task before this one. A deterministic task has checkpoints of its
    own, so each of its commits is a trace.
    """

    def __init__(self, topology: Topology, wiring: TaskWiring, per_million: int, spans: TellsSpans) -> None:
        self._job, self._task, self._per_million, self._spans = topology.job.encode(), wiring.name, per_million, spans
        before = [] if wiring.deterministic else [p for p, _ in wiring.channels if p not in wiring.logical]
        self._parent = ""
        if before:
            stage, partition = split_producer_id(min(before))
            self._parent = f"{topology.stages[stage].name}-{partition}"
        self._open: tuple[int, int] | None = None  # checkpoint, when it was frozen

    def moved(self, checkpoint_id: int | None, committed: int) -> None:
        """Note the checkpoint whose commit is on its way, None: it has ended; and which one was committed last."""
        if self._open is not None and self._open[0] != checkpoint_id:
            if committed >= self._open[0]:
                self._end(*self._open)
            self._open = None
        if self._open is None and checkpoint_id is not None:
            self._open = checkpoint_id, time.time_ns()

    def _end(self, checkpoint_id: int, begun_ns: int) -> None:
        name = self._job, b"checkpoint", b"%d" % checkpoint_id
        if not is_sampled(self._per_million, *name):
            return
        trace = TraceContext(derived_id(*name, bits=128), 0, sampled=True)
        own, parent = (trace._replace(span_id=derived_id(*name, task.encode())) for task in (self._task, self._parent))
        self._spans.commit(self._task, checkpoint_id, own, parent if self._parent else trace, begun_ns)
