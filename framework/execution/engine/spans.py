"""Reports spans by the API of OpenTelemetry. The tracer provider of the job's code decides where they go."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags

from grete.api.record import Record
from grete.api.tasks.trace_ids import set_next_ids
from grete.execution.records.trace_context import RecordTrace, TraceContext
from grete.protocol.record_batch import RecordBatch
from grete.quoting import named_error, shows_values

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)

logger = logging.getLogger("grete.tracing")


class _RecordSpan:
    """The span of a record of an async process."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, error: BaseException | None) -> None:
        """End it, with the error that ended the code if there was one."""
        if error is not None:
            if shows_values():
                self._span.record_exception(error)
            self._span.set_status(StatusCode.ERROR, named_error(error))
        self._span.end()


class Spans:
    """The spans of one task."""

    def __init__(self, job: str, stage: str, partition: int) -> None:
        self._tracer = trace.get_tracer("grete")
        self._attributes: dict[str, str | int] = {"grete.job": job, "grete.stage": stage, "grete.partition": partition}
        self._warned = False

    def begin(self, of: RecordTrace, record: Record[Any, Any]) -> _RecordSpan:
        """Begin the span of a record."""
        return _RecordSpan(self._record(of, record))

    @contextmanager
    def record(self, of: RecordTrace, record: Record[Any, Any]) -> Iterator[None]:
        """Let the span of a record be the current one while its code runs."""
        told = shows_values()  # else no text of an error
        span = self._record(of, record)
        with trace.use_span(span, end_on_exit=True, record_exception=told, set_status_on_exception=told):
            yield

    def _record(self, of: RecordTrace, record: Record[Any, Any]) -> Span:
        attributes: dict[str, str | int] = {
            "messaging.system": "grete",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "grete.offset": record.offset,
        }
        return self._start(f"process {record.topic}", of.own, of.parent, SpanKind.CONSUMER, attributes)

    def sent(self, topic: str, parent: TraceContext, own: TraceContext) -> None:
        """Tell the span of an output: it names it in its header."""
        attributes: dict[str, str | int] = {
            "messaging.system": "grete",
            "messaging.operation.type": "send",
            "messaging.destination.name": topic,
        }
        self._start(f"send {topic}", own, parent, SpanKind.PRODUCER, attributes).end()

    def batch(self, batch: RecordBatch, records: Sequence[TraceContext], begun_ns: int) -> None:
        """Tell the span of a batch, a trace of its own, with links to its sampled records."""
        source, count = batch.source, len(batch.keys)
        self._tracer.start_span(
            f"batch {source.topic}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes
            | {"messaging.destination.name": source.topic, "messaging.batch.message_count": count},
            links=[Link(_remote(each)) for each in records],
            start_time=begun_ns,
        ).end()

    def commit(self, task: str, checkpoint_id: int, own: TraceContext, parent: TraceContext, begun_ns: int) -> None:
        """Tell the span of a commit."""
        attributes: dict[str, str | int] = {"grete.task": task, "grete.checkpoint_id": checkpoint_id}
        self._start("checkpoint", own, parent, SpanKind.INTERNAL, attributes, begun_ns).end()

    def _start(
        self,
        name: str,
        own: TraceContext,
        parent: TraceContext,
        kind: SpanKind,
        attributes: dict[str, str | int],
        begun_ns: int | None = None,
    ) -> Span:
        """Begin a span with the ids that are derived for it."""
        context = Context()
        if parent.span_id:
            context = trace.set_span_in_context(NonRecordingSpan(_remote(parent)), context)
        set_next_ids(own.trace_id, own.span_id)
        try:
            span = self._tracer.start_span(
                name, context=context, kind=kind, attributes=self._attributes | attributes, start_time=begun_ns
            )
        finally:
            set_next_ids(0, 0)
        if span.is_recording() and span.get_span_context().span_id != own.span_id and not self._warned:
            self._warned = True
            logger.warning(
                "spans have other ids than the headers of records, so traces fall apart: make the tracer provider as "
                "TracerProvider(id_generator=grete.TraceIds())"
            )
        return span


def _remote(of: TraceContext) -> SpanContext:
    return SpanContext(of.trace_id, of.span_id, is_remote=True, trace_flags=_SAMPLED)
