"""For consumers outside of a deterministic job to which a record may come twice (docs/explanation/deterministic.md)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

OUTPUT = "grete"  # a deterministic job's own header: "SEQ T PRODUCER", as text
PRODUCER, SEQ, TIME = "grete.producer", "grete.seq", "grete.t"  # the same in three, as release 0.1 wrote them


class Origin(NamedTuple):
    """The writer of a record and its number there: ``seq`` from 1; ``t``: logical time in µs, -1 if it has none."""

    producer: str
    seq: int
    t: int


def origin_of(headers: Iterable[tuple[str, bytes | None]]) -> Origin | None:
    """Return the origin of a record; None: it has no number.

    A task puts its own headers behind those that it hands on from its input, so the last ones count. Feeds and Writer
    write PRODUCER and SEQ.
    """
    producer, seq, t = "", -1, -1
    for name, value in headers:
        if value is None:
            continue  # none of ours
        if name == OUTPUT:
            parts = value.split(b" ", 2)
            if len(parts) == 3 and parts[0].isdigit() and parts[1].isdigit():  # else another program's
                seq, t, producer = int(parts[0]), int(parts[1]), parts[2].decode()
        elif name == PRODUCER:
            producer = value.decode(errors="replace")
        elif name == SEQ:
            seq = int(value) if value.isdigit() else -1
        elif name == TIME:
            t = int(value) if value.isdigit() else -1
    return Origin(producer, seq, t) if producer and seq >= 0 else None


class Once:
    """Remembers the last seq of each (topic, partition, producer). Within one of them seqs grow without a gap.

    Needed only where a record of the job's output topics can come twice: a consumer that reads uncommitted, a copy
    made at least once, a consumer of your own that starts again. Keep ``seen`` with what you derive from the records.
    """

    def __init__(self, seen: Mapping[tuple[str, int, str], int] | None = None) -> None:
        """``seen``: the last seq by (topic, partition, producer), as an earlier ``seen`` had it."""
        self.seen: dict[tuple[str, int, str], int] = dict(seen or {})

    def is_new(self, topic: str, partition: int, headers: Iterable[tuple[str, bytes | None]] | None) -> bool:
        """Tell whether a record was not seen before, and remember it. Raises ValueError: no headers of Grete, a gap."""
        origin = origin_of(headers or ())
        if origin is None:
            raise ValueError(f"{topic}[{partition}]: a record without header {OUTPUT!r}: not from a deterministic job")
        place, seq = (topic, partition, origin.producer), origin.seq
        last = self.seen.get(place)
        if last is not None and seq <= last:
            return False
        if last is not None and seq != last + 1:
            raise ValueError(
                f"{topic}[{partition}]: seq {seq} of producer {origin.producer} after {last}: records were lost"
            )
        self.seen[place] = seq
        return True
