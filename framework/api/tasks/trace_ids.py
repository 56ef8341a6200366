"""Span ids for OpenTelemetry that a task derives from its records, so that they are the same after a replay."""

import random
import threading

_next = threading.local()


class TraceIds:
    """The id generator of a tracer provider: ``TracerProvider(id_generator=TraceIds())``.

    Spans of Grete get the ids that the headers of records name; all others get random ones.
    """

    def generate_span_id(self) -> int:
        """Return 64 bits that are not 0."""
        return getattr(_next, "span_id", 0) or _random(64)

    def generate_trace_id(self) -> int:
        """Return 128 bits that are not 0."""
        return getattr(_next, "trace_id", 0) or _random(128)

    def is_trace_id_random(self) -> bool:
        """Return False: some of them derive from records."""
        return False


def set_next_ids(trace_id: int, span_id: int) -> None:
    """Let the next span of this thread have these ids; 0: random ones."""
    _next.trace_id, _next.span_id = trace_id, span_id


def _random(bits: int) -> int:
    return random.getrandbits(bits) or 1  # names, no secrets
