"""The targets of an output: a partition for each key, of one topic or of several."""

from collections.abc import Callable, Sequence
from math import lcm
from typing import Any, TypeVar, overload

from grete.api.serdes.key import PartitionBy
from grete.execution.records.frame_buffer import AnyHeaders

Append = Callable[[Any, bytes | None, bytes | None, int, AnyHeaders], None]  # target, key, value, timestamp, headers
P = TypeVar("P")

KNOWN_MAX = 1 << 14  # keys whose targets a sender remembers: about 2 MB of short keys


class Targets(dict[bytes, P]):
    """Key → the target for its partition, which is looked up in C when the key is known: keys repeat."""

    def __init__(self, targets: Sequence[P], partition_by: PartitionBy, known_max: int = KNOWN_MAX) -> None:
        """``targets``: one for each partition."""
        super().__init__()
        self._targets, self._partition_by, self._known_max = targets, partition_by, known_max

    def __missing__(self, key: bytes) -> P:
        """Work the target out, and remember it; where there is one only, no key need be hashed."""
        if len(self._targets) == 1:
            return self._targets[0]
        if len(self) >= self._known_max:
            self.clear()
        target = self[key] = self._targets[self._partition_by(key, len(self._targets))]
        return target


class TargetsOfAll(Sequence[tuple[Any, ...]]):
    """The targets of a topic with several ends: as many as each end's number of partitions divides.

    So a key, or a turn, has in each of them the partition that it would have there alone. ``whole`` is in each target.
    """

    def __init__(self, ends: Sequence[Sequence[Any]], whole: tuple[Any, ...] = ()) -> None:
        self._ends, self._whole = ends, whole
        self.common = min((getattr(end, "common", len(end)) for end in ends), default=1)  # partitions that all have

    def __len__(self) -> int:
        return lcm(*(len(end) for end in self._ends))

    @overload
    def __getitem__(self, index: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Any, ...]]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return *(end[index % len(end)] for end in self._ends), *self._whole


def both_ends(
    inside: tuple[Append, Sequence[Any]], outside: tuple[Append, Sequence[Any]]
) -> tuple[Append, Sequence[tuple[Any, Any]]]:
    """Return (append to the streams and to the external topic, the targets) of a public topic."""
    append_inside, append_outside = inside[0], outside[0]

    def append(
        target: tuple[Any, Any], key: bytes | None, value: bytes | None, timestamp: int, headers: AnyHeaders
    ) -> None:
        append_inside(target[0], key, value, timestamp, headers)
        append_outside(target[1], key, value, timestamp, headers)

    return append, TargetsOfAll((inside[1], outside[1]))
