"""Decoded frames of a deterministic producer. A redelivered record must equal the original (D3)."""

from collections.abc import Callable
from dataclasses import dataclass

from grete.protocol.envelope import Header
from grete.protocol.frames import decode_columns, digest_records
from grete.protocol.record_batch import RecordBatch
from grete.quoting import key_text, value_text

NOT_LOGICAL = "no logical time: its producer is not deterministic"


@dataclass(slots=True)
class DecodedFrame:
    """A frame, decoded. Of its records those from ``start`` on are not processed."""

    seq: int
    offset: int
    size: int
    batch: RecordBatch
    pairs: list[tuple[int, int]]  # (t, source id) of each record
    start: int
    whole: int = -1  # the digest after it, once it was asked for

    def digest_at(self, stop: int) -> int:
        """Return the channel's digest after the first ``stop`` records."""
        if stop < len(self.pairs):
            return self._digest(stop)
        if self.whole < 0:
            self.whole = self._digest(stop)
        return self.whole

    def _digest(self, stop: int) -> int:
        batch = self.batch
        assert batch.logical is not None
        times, sources = batch.logical
        cells = None if batch.headers is None else batch.headers[:stop]
        columns = batch.keys[:stop], batch.values[:stop], batch.timestamps[:stop], cells
        return digest_records(batch.digest, *columns, (times[:stop], sources[:stop]))

    def record(self, seq: int) -> tuple[object, ...]:
        """Return all of one record, to be compared."""
        at, batch = seq - self.seq, self.batch
        cell = None if batch.headers is None else batch.headers[at]
        return batch.keys[at], batch.values[at], batch.timestamps[at], cell, self.pairs[at]


def receive(header: Header, offset: int, value: bytes, known: int) -> DecodedFrame | None:
    """Decode a frame whose first ``known`` records are known; None if it has no logical time. Raises DecodeError."""
    batch = decode_columns(value)
    if batch.logical is None:
        return None
    return DecodedFrame(header.seq, offset, len(value), batch, list(zip(*batch.logical, strict=True)), known)


def difference(before: DecodedFrame | None, received: int, digest: int, frame: DecodedFrame, known: int) -> str | None:
    """Return the error text for a frame of another incarnation that differs from the one received before; None: equal.

    ``before``: what was received last, up to seq ``received``. None: nothing since the start; then ``digest`` is the
    channel's there.
    """
    if before is not None:
        for seq in range(max(before.seq, frame.seq), min(received + 1, frame.seq + len(frame.pairs))):
            was, now = before.record(seq), frame.record(seq)
            if was != now:
                return _differs(seq, was, now)
        digest = before.digest_at(len(before.pairs))
    if known < len(frame.pairs) and frame.digest_at(known) != digest:
        return f"one or more of its records up to seq {received} are not what was received before: {_WHAT_TO_DO}"
    return None


_WHAT_TO_DO = (
    "a deterministic task must make the same outputs of the same input: no clock, no randomness, no order of a set; "
    "`grete check-determinism` finds the record; or its code was changed while it had not stopped gracefully: put the "
    "code of before back, stop it gracefully, then start the new code"
)


_SHOWN: tuple[tuple[str, Callable[[object], str]], ...] = (
    ("key", key_text),
    ("value", value_text),
    ("timestamp", repr),
    ("headers", value_text),
    ("(t, source)", repr),
)


def _differs(seq: int, before: tuple[object, ...], now: tuple[object, ...]) -> str:
    """Return the error text for a record that came twice, and differently."""
    shown = zip(_SHOWN, before, now, strict=True)
    parts = [f"{name} {text(b):.80}, now {text(n):.80}" for (name, text), b, n in shown if b != n]
    found = f"record seq {seq} was received before with {'; '.join(parts)}"
    return f"the producer was not deterministic: {found}: {_WHAT_TO_DO}"
