"""Spans in memory, of all tasks of this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from grete import TraceIds

EXPORTER = InMemorySpanExporter()


@cache
def _export_all() -> None:
    """A process has one provider, which another test may have made: it exports here, too."""
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))


@contextmanager
def exported() -> Iterator[Callable[[], list[ReadableSpan]]]:
    """Yield a function that returns the spans that have ended."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider(id_generator=TraceIds()))  # type: ignore[arg-type]  # it has its methods
    _export_all()
    EXPORTER.clear()
    yield lambda: list(EXPORTER.get_finished_spans())


def ids(span: ReadableSpan) -> tuple[int, int, int]:
    """Return trace, span and parent (0: none)."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id, 0 if span.parent is None else span.parent.span_id
