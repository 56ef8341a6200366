"""Trace contexts of records: read as W3C says, handed on, and derived from the record alone."""

import pytest

from grete.execution.records.trace_context import RecordTrace, TraceContext, context_of, derived_id, is_sampled

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
HEADER = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (HEADER, TraceContext(TRACE, SPAN, sampled=True)),
        (HEADER[:-1] + b"0", TraceContext(TRACE, SPAN, sampled=False)),
        (b"cc" + HEADER[2:] + b"-later", TraceContext(TRACE, SPAN, sampled=True)),  # of a later version
        (HEADER + b"-more", None),
        (b"ff" + HEADER[2:], None),
        (HEADER.upper(), None),
        (b"00-" + b"0" * 32 + HEADER[35:], None),
        (HEADER[:36] + b"0" * 16 + b"-01", None),
        (b"", None),
    ],
)
def test_a_header_is_read_as_w3c_says(value: bytes, found: TraceContext | None) -> None:
    """An invalid header gives no context; an encoded context decodes to itself."""
    assert context_of([("a", b"b"), ("traceparent", value)]) == found
    if found is not None:
        assert context_of([("traceparent", found.encode())]) == found


def trace(**more: bytes) -> RecordTrace:
    """Return a record's trace."""
    parent = TraceContext(TRACE, SPAN, sampled=True)
    return RecordTrace(parent, parent._replace(span_id=7), [("traceparent", HEADER), *more.items()])


def test_each_output_has_a_span_of_its_own() -> None:
    """Derived from the record's span and the number of the send: the same when the record is processed again."""
    first, again = trace(), trace()
    made = [first.outgoing([("a", b"b")]) for _ in range(3)]
    assert made == [again.outgoing([("a", b"b")]) for _ in range(3)]
    assert len({span.span_id for _, span in made if span is not None}) == 3
    headers, span = made[0]
    assert span is not None
    assert headers == (("a", b"b"), ("traceparent", span.encode()))
    assert context_of(headers) == span == TraceContext(TRACE, span.span_id, sampled=True)


def test_headers_that_are_handed_on_go_on_from_here() -> None:
    """The record's own is replaced, and its tracestate kept; one that the code has made stays as it is."""
    state = trace(tracestate=b"a=b")
    headers, span = state.outgoing([("traceparent", HEADER), ("tracestate", b"a=b")])
    assert span is not None
    assert headers == (("tracestate", b"a=b"), ("traceparent", span.encode()))
    assert state.outgoing([])[0][-1] == ("tracestate", b"a=b")
    own = [("traceparent", HEADER.replace(b"7-01", b"8-01"))]
    assert state.outgoing(own) == (tuple(own), None)


def test_a_sample_is_the_same_everywhere() -> None:
    """By name alone, and about as many as asked for."""
    names = [(b"topic", b"%d" % number) for number in range(10_000)]
    assert not any(is_sampled(0, *name) for name in names)
    assert all(is_sampled(1_000_000, *name) for name in names)
    assert 800 < sum(is_sampled(100_000, *name) for name in names) < 1_200
    assert derived_id(b"ab", b"c") != derived_id(b"a", b"bc")
    assert derived_id(b"a", bits=128) >> 64
