"""What goes from a speculative task to the next ones, and the order of it all."""

from dataclasses import dataclass

Bound = tuple[int, int]  # (t in µs, source id): all up to it
Path = tuple[int, ...]  # the channel at each task on the way, the last task's first
Place = tuple[int, int, Path]  # of a bundle in the order of a task: (t, source id, path)
Records = tuple[tuple[bytes, bytes], ...]  # (key, value)

NOTHING: Bound = (-1, -1)
ALL = 1 << 62  # above any source id
OUTSIDE = -1  # the number of the output that leaves the job


@dataclass(frozen=True, slots=True)
class Revision:
    """The bundle of a place is now this one; without records: there is none."""

    generation: int
    t: int
    source: int
    path: Path
    records: Records


@dataclass(frozen=True, slots=True)
class Passed:
    """No bundle up to the bound will be revised any more."""

    generation: int
    bound: Bound


Message = Revision | Passed


@dataclass(frozen=True, slots=True)
class ChannelPoint:
    """Where a restart reads a channel again, and how it was there."""

    offset: int
    generation: int
    bound: Bound
    promised: Bound


@dataclass(frozen=True, slots=True)
class SpeculativeCommit:
    """What a restart goes on from, besides the state: all up to ``settled`` is in it."""

    settled: Bound
    channels: tuple[ChannelPoint, ...]
