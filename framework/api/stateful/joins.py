"""The common parts of joins: their sides, and the pair that ``on_join`` gets.

What comes on one side meets what the other side has; both sides are state of the task. It is the task that says which
records of which inputs are the sides, and by which key and time.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from grete.api.serdes.serde import Serde, key_serde
from grete.api.stateful.declaration import Stateful
from grete.errors import ConfigError

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")

How = Literal["inner", "left", "outer"]


class Pair(msgspec.Struct, Generic[K, L, R], frozen=True, gc=False):
    """The argument of ``on_join``: the values of two records or rows of one key, and their times in ms.

    A side is None where there is none: of a left or outer join. Both are None where a row of a TableJoin is gone; then
    ``gone`` is True, and the record to send has the value None. What deletes a row has a time as well.
    """

    name: str  # of the declaration
    key: K
    left: L | None
    right: R | None
    left_time: int | None
    right_time: int | None

    @property
    def timestamp(self) -> int:
        """The later of the two times: what is sent in ``on_join`` carries it unless given."""
        return max(time for time in (self.left_time, self.right_time) if time is not None)

    @property
    def gone(self) -> bool:
        """Whether there is no such row any more."""
        return self.left is None and self.right is None


class Join(Stateful, Generic[K, L, R]):
    """The base of both joins. ``how``: which records without a match are told, "left" those of the left side."""

    what = "join"
    method = "on_join"
    results = "records"
    kind: str  # pinned with the sizes
    sizes: dict[str, int]

    def __init__(self, name: str, key: Serde[K], left: Serde[L], right: Serde[R], how: How) -> None:
        """Raises ConfigError on another ``how``."""
        if how not in ("inner", "left", "outer"):
            raise ConfigError(
                f"join {name!r}: how = {how!r}: need 'inner', 'left' or 'outer'; for a right join swap the sides"
            )
        super().__init__(name)
        self.key = key_serde(key)
        self.how = how
        self.serdes: dict[str, Serde[Any]] = {"key": self.key, "left": left, "right": right}


def give_pair(
    join: Join[K, L, R], key: K, sides: tuple[L | None, R | None], times: tuple[int | None, int | None]
) -> None:
    """Give ``on_join`` a pair of left and right."""
    pair: Pair[K, L, R] = Pair(join.name, key, *sides, *times)
    join.give(pair, pair.timestamp)
