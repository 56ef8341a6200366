"""For consumers outside of a deterministic job to which a record may come twice (docs/explanation/deterministic.md)."""

from collections.abc import Iterable, Mapping

PRODUCER, SEQ, TIME = "grete.producer", "grete.seq", "grete.t"


class Once:
    """Remembers the last seq of each (topic, partition, producer). Within one of them seqs grow without a gap.

    Needed only where a record of the job's output topics can come twice: a consumer that reads uncommitted, a copy
    made at least once, a consumer of your own that starts again. Keep ``seen`` with what you derive from the records.
    """

    def __init__(self, seen: Mapping[tuple[str, int, str], int] | None = None) -> None:
        """``seen``: the last seq by (topic, partition, producer), as an earlier ``seen`` had it."""
        self.seen: dict[tuple[str, int, str], int] = dict(seen or {})

    def is_new(self, topic: str, partition: int, headers: Iterable[tuple[str, bytes]] | None) -> bool:
        """Tell whether a record was not seen before, and remember it. Raises ValueError: no headers of Grete, a gap."""
        found = dict(headers or ())
        try:
            producer, seq = found[PRODUCER].decode(), int(found[SEQ])
        except KeyError as error:
            raise ValueError(
                f"{topic}[{partition}]: a record without header {error}: not from a deterministic job"
            ) from error
        place = (topic, partition, producer)
        last = self.seen.get(place)
        if last is not None and seq <= last:
            return False
        if last is not None and seq != last + 1:
            raise ValueError(f"{topic}[{partition}]: seq {seq} of producer {producer} after {last}: records were lost")
        self.seen[place] = seq
        return True
