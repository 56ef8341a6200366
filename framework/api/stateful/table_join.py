"""A join of two tables by key: the rows of both sides are one entry."""

import struct
from typing import TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version
from grete.api.stateful.joins import How, Join, give_pair
from grete.api.store import Store
from grete.errors import TaskError
from grete.quoting import key_text

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
V = TypeVar("V")

_TIMED = struct.Struct(">qI")  # time, bytes of the value that follows

Row = tuple[int, V] | None  # time, value


@in_each_version
def _rows_serde(left: Serde[L], right: Serde[R]) -> Serde[tuple[Row[L], Row[R]]]:
    (encode_left, decode_left), (encode_right, decode_right) = functions_of(left), functions_of(right)

    def encode(rows: tuple[Row[L], Row[R]]) -> bytes:
        parts = [bytes((rows[0] is not None, rows[1] is not None))]
        if rows[0] is not None:
            raw = encode_left(rows[0][1])
            parts += [_TIMED.pack(rows[0][0], len(raw)), raw]
        if rows[1] is not None:
            raw = encode_right(rows[1][1])
            parts += [_TIMED.pack(rows[1][0], len(raw)), raw]
        return b"".join(parts)

    def decode(data: bytes) -> tuple[Row[L], Row[R]]:
        at = 2
        left_row: Row[L] = None
        right_row: Row[R] = None
        if data[0]:
            time, length = _TIMED.unpack_from(data, at)
            at += _TIMED.size
            left_row = time, decode_left(data[at : at + length])
            at += length
        if data[1]:
            time, length = _TIMED.unpack_from(data, at)
            at += _TIMED.size
            right_row = time, decode_right(data[at : at + length])
        return left_row, right_row

    return Codec(f"rows({left.name}, {right.name})", (encode, decode), schema=(left, right))


class TableJoin(Join[K, L, R]):
    """A class attribute of a task: a join of two tables by key. ``on_join`` gets each change of a row of the result.

    A row of the result is there if both sides have the key; with how="left" if the left side has it, with "outer" if
    one of them has. The row that comes last in its topic counts, whatever its time. A value None deletes a row (a
    tombstone); if the result loses one, ``on_join`` gets a Pair with ``gone`` True.
    """

    by_time = False

    def __init__(self, name: str, key: Serde[K], left: Serde[L], right: Serde[R], how: How = "inner") -> None:
        """Declare the join; it is also a store of this name. Raises ConfigError on another ``how``."""
        super().__init__(name, key, left, right, how)
        self.kind = f"{how} table join"
        self.sizes = {}
        self.rows: Store[K, tuple[Row[L], Row[R]]] = Store(name, key, _rows_serde(left, right))

    def put_left(self, key: K, timestamp: int, value: L | None) -> None:
        """Set or, with None, delete the left side's row; give ``on_join`` what becomes of the result.

        Raises TaskError if the join is not part of a running task, SerdeError on a bad key or value.
        """
        self.check_runs()
        before = self.rows.get(key, (None, None))
        now = None if value is None else (timestamp, value), before[1]
        self._change(key, before, now, (timestamp, before[1] and before[1][0]))

    def put_right(self, key: K, timestamp: int, value: R | None) -> None:
        """As ``put_left``, of the right side."""
        self.check_runs()
        before = self.rows.get(key, (None, None))
        now = before[0], None if value is None else (timestamp, value)
        self._change(key, before, now, (before[0] and before[0][0], timestamp))

    def _change(
        self,
        key: K,
        before: tuple[Row[L], Row[R]],
        now: tuple[Row[L], Row[R]],
        times: tuple[int | None, int | None],
    ) -> None:
        if now == (None, None):
            self.rows.delete(key)
        else:
            self.rows.put(key, now)
        left, right = now
        if self._has_row(*now):
            give_pair(self, key, (left and left[1], right and right[1]), times)
        elif self._has_row(*before):
            give_pair(self, key, (None, None), times)

    def _has_row(self, left: Row[L], right: Row[R]) -> bool:
        if self.how == "inner":
            return left is not None and right is not None
        return left is not None or (self.how == "outer" and right is not None)

    def fire(self, at: int, key: str) -> None:
        """As of Stateful: nothing of it is outdated by time. Raises TaskError: there is no timer of it."""
        raise TaskError(f"join {self.name!r} has a timer of key {key_text(key)} at {at}, which it never sets")
