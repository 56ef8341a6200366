"""The headers by which an output tells who made it, as which number, at which logical time (D5).

They are one header. A job of release 0.1 wrote three. It goes on with three up to its first commit by this build that
has nothing to make again: what is made again must be what its digests say.
"""

from grete.api.topics.reader import OUTPUT, PRODUCER, SEQ, TIME, origin_of
from grete.execution.records.frame_buffer import AnyHeaders
from grete.protocol.frames import decode_headers, encode_headers

ONE = b"headers"  # in META: a task writes one header. Its value is the format's number
FORMAT = (2).to_bytes()
_EMPTY = len(encode_headers([(OUTPUT, b"")]))


class Heads(dict[int, bytes]):
    """The begin of a cell that holds our one header and no other, by the length of its text."""

    def __missing__(self, length: int) -> bytes:
        head = self[length] = encode_headers([(OUTPUT, b"x" * length)])[:_EMPTY]
        return head


def cell_of(theirs: AnyHeaders, producer: bytes, seq: int, t: int, *, one: bool) -> bytes:
    """Return the cell of a record's own headers and ours behind them."""
    if one:
        return encode_headers([*theirs, (OUTPUT, b"%d %d %b" % (seq, t, producer))])
    return encode_headers([*theirs, (PRODUCER, producer), (SEQ, b"%d" % seq), (TIME, b"%d" % t)])


def theirs_of(headers: AnyHeaders) -> AnyHeaders:
    """Return the headers of an output without ours, which are the last."""
    return headers[:-1] if headers[-1][0] == OUTPUT else headers[:-3]


def content_of(cell: bytes) -> bytes:
    """Return an output's headers without those of ours, for a comparison."""
    headers = [(name, value or b"") for name, value in decode_headers(cell)]  # null: as releases up to 0.3.0 wrote it
    origin = origin_of(headers)
    return encode_headers([*theirs_of(headers), (TIME, b"%d" % (-1 if origin is None else origin.t))])
