"""Spans in memory, of all tasks of this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from grete import TraceIds

EXPORTER = InMemorySpanExporter()


@contextmanager
def exported() -> Iterator[Callable[[], list[ReadableSpan]]]:
    """Yield what returns the spans that have ended."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # a process has one
        provider = TracerProvider(id_generator=TraceIds())  # type: ignore[arg-type]  # it has its methods
        provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
        trace.set_tracer_provider(provider)
    EXPORTER.clear()
    yield lambda: list(EXPORTER.get_finished_spans())


def ids(span: ReadableSpan) -> tuple[int, int, int]:
    """Return trace, span and parent (0: none)."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id, 0 if span.parent is None else span.parent.span_id
