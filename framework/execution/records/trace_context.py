"""The W3C trace context of a record, and of what is made of it: a function of the record alone (D3).

A deterministic task makes its outputs again after a crash, and digests cover their headers. So ids are derived from the
record and from the number of the send, never drawn.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.api.record import Headers
from grete.protocol.record_batch import RecordBatch

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
MILLION = 1_000_000  # sampling rates are shares of it
LINKS_MAX = 128  # of the span of a batch: as many as OpenTelemetry keeps by default
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """A span: as a record names it, or as it is made here. ``span_id`` 0: there is none before."""

    trace_id: int
    span_id: int
    sampled: bool

    def encode(self) -> bytes:
        """Return the value of the header."""
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.sampled)


class _Current:
    """The records of this process, whose tasks run in one thread: that whose code runs, and that of log lines."""

    trace: "RecordTrace | None" = None
    logged: TraceContext | None = None  # stays after an error, for the line that tells of it


CURRENT = _Current()


class RecordTrace:
    """A record whose code runs, as spans see it. ``own``: its span; ``parent``: the span that has sent it."""

    __slots__ = ("_incoming", "_state", "own", "parent", "sent")

    def __init__(self, parent: TraceContext, own: TraceContext, headers: Iterable[tuple[str, bytes | None]]) -> None:
        self.parent, self.own, self.sent = parent, own, 0
        found = dict(headers)
        self._incoming, self._state = found.get(TRACEPARENT), found.get(TRACESTATE)

    def outgoing(self, headers: Iterable[tuple[str, bytes | None]]) -> tuple[Headers, TraceContext | None]:
        """Return the headers of an output, and its span.

        None: it has none, because it is not sampled, or because the code has put a context of its own there.

        A header that is handed on from the record is replaced: it names the span before this one.
        """
        theirs = tuple(pair for pair in headers if pair != (TRACEPARENT, self._incoming))
        names = {name for name, _ in theirs}
        if TRACEPARENT in names:
            return theirs, None
        state = () if self._state is None or TRACESTATE in names else ((TRACESTATE, self._state),)
        if not self.own.sampled:  # no span is told, so the header names the one that it named before
            return (*theirs, (TRACEPARENT, self.own.encode()), *state), None
        self.sent += 1
        span = self.own._replace(span_id=derived_id(b"%016x" % self.own.span_id, b"%d" % self.sent))
        return (*theirs, (TRACEPARENT, span.encode()), *state), span


class NoTracing:
    """Tracing is off: code, loops and senders are as they are."""

    def around(self, stage: StageGraph, process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``process``."""
        return process

    def around_batch(self, loop: Callable[[RecordBatch], None]) -> Callable[[RecordBatch], None]:
        """Return ``loop``."""
        return loop

    def sender(self, target: object, send: Callable[..., None]) -> Callable[..., None]:
        """Return ``send``."""
        return send


def context_of(headers: Iterable[tuple[str, bytes | None]]) -> TraceContext | None:
    """Return the context in a record's headers, the last one; None: there is none that is valid."""
    found = [value for name, value in headers if name == TRACEPARENT]
    match = _FORM.fullmatch(found[-1] or b"") if found else None
    if match is None or match[1] == b"ff" or (match[1] == b"00" and match[5] is not None):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    return TraceContext(trace_id, span_id, bool(int(match[4], 16) & 1)) if trace_id and span_id else None


def derived_id(*parts: bytes, bits: int = 64) -> int:
    """Return an id that is not 0, always the same for these parts."""
    digest = hashlib.blake2b(digest_size=bits // 8)
    for part in parts:
        digest.update(b"%d:%b" % (len(part), part))
    return int.from_bytes(digest.digest()) or 1


def is_sampled(per_million: int, *parts: bytes) -> bool:
    """Tell whether what has this name is sampled: always the same answer."""
    return per_million > 0 and derived_id(b"sample", *parts) % MILLION < per_million
