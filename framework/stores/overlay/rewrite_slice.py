"""One commit's share of a changelog rewrite: live keys after a cursor, read from the state store (K2)."""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping

from grete.errors import Halted
from grete.halts import HaltCode
from grete.ports import StateStore, Write
from grete.stores.overlay.expiring_store import horizon
from grete.stores.overlay.overlay_store import OverlayStore, WriteBatch

StoredEntry = tuple[int, bytes, bytes]  # store id, key, value

ROW_BYTES = 10  # of a row in a data message, beside key and value: store id and two lengths

_CURSOR = struct.Struct(">h")  # store id; the key follows
BEGUN = _CURSOR.pack(-1)  # a cursor before all stores: a round has begun, and nothing is rewritten


class RewriteRounds:
    """The rewrite of a task's state in rounds. ``expired``: keys that it has deleted, by store, not yet applied."""

    def __init__(self, base: StateStore, stores: Mapping[int, OverlayStore], expiring: Collection[int]) -> None:
        self._base, self._stores, self._expiring = base, stores, frozenset(expiring)
        self.last_keys: dict[int, bytes | None] = {}  # as of the first slice of a round that this process saw
        self.expired: dict[int, WriteBatch] = {}

    def next_slice(
        self, cursor: bytes, *, event_time: int, keys_max: int, bytes_max: float, deleted_bytes_max: float
    ) -> tuple[list[Write], bytes, bool]:
        """Return a slice as ``slice_of`` does; what has expired at the checkpoint's event time is deleted with it."""
        if bytes_max > 0 and (cursor in (b"", BEGUN) or not self.last_keys):
            self.last_keys = {store: self._base.last_key(store) for store in self._stores}
        least = horizon(event_time)
        writes, cursor, done = slice_of(
            self._base,
            self.last_keys,
            lambda store_id, key: self._stores[store_id].is_frozen(key),
            cursor,
            is_expired=lambda store_id, value: store_id in self._expiring and value < least,
            keys_max=keys_max,
            bytes_max=bytes_max,
            deleted_bytes_max=deleted_bytes_max,
        )
        for store_id, key, value in writes:
            if value is None:
                self.expired.setdefault(store_id, {})[key] = None
        return writes, cursor, done

    def take_expired(self) -> dict[int, WriteBatch]:
        """Return the keys that were deleted since this was last called, by store."""
        expired, self.expired = self.expired, {}
        return expired


def slice_of(
    base: StateStore,
    last_keys: Mapping[int, bytes | None],
    is_frozen: Callable[[int, bytes], bool],
    cursor: bytes,
    *,
    is_expired: Callable[[int, bytes], bool],
    keys_max: int,
    bytes_max: float,
    deleted_bytes_max: float,
) -> tuple[list[Write], bytes, bool]:
    """Return (keys after ``cursor`` as (store id, key, value), next cursor, whether the round is done) (K2).

    Keys for which ``is_frozen`` are left out, because the commit's own data hold them. So what remains is what the
    state store and the frozen checkpoint agree on. A key whose stored value ``is_expired`` comes with None: it is to
    be deleted. ``last_keys``: by store, in order, of some moment since the round began; keys behind them have come
    since, so they are in the changelog. A slice passes ``keys_max`` keys at most, and ends once its live rows take
    ``bytes_max`` bytes or its deletes ``deleted_bytes_max``; with none of either it passes no key, and no round ends.
    Cursor: INT16 store id + key passed last; b"" starts a round, and is what a finished round returns.
    Raises Halted for a cursor that cannot be one.
    """
    if 0 < len(cursor) < _CURSOR.size:
        raise Halted(
            f"rewrite cursor {cursor!r}: need {_CURSOR.size} bytes of store id and a key; the commit is damaged",
            code=HaltCode.CHANGELOG_DAMAGED,
        )
    rewritten: list[Write] = []
    size = deleted = 0
    if bytes_max <= 0 or deleted_bytes_max <= 0:
        return rewritten, cursor or BEGUN, False
    for passed, (store_id, key, value) in enumerate(_rows_after(base, last_keys, cursor)):
        if size >= bytes_max or deleted >= deleted_bytes_max or passed == keys_max:
            return rewritten, cursor, False
        cursor = _CURSOR.pack(store_id) + key
        if is_frozen(store_id, key):
            continue
        if is_expired(store_id, value):
            rewritten.append((store_id, key, None))
            deleted += row_bytes(key, None)
        else:
            rewritten.append((store_id, key, value))
            size += row_bytes(key, value)
    return rewritten, b"", True


def cursor_of(cursor: bytes) -> tuple[int, bytes]:
    """Return (store id, key passed last) of a cursor that is not empty."""
    return _CURSOR.unpack_from(cursor)[0], cursor[_CURSOR.size :]


def row_bytes(key: bytes, value: bytes | None) -> int:
    """Return the number of bytes of a row in a data message."""
    return ROW_BYTES + len(key) + len(value or b"")


def _rows_after(base: StateStore, last_keys: Mapping[int, bytes | None], cursor: bytes) -> Iterator[StoredEntry]:
    first = _CURSOR.unpack_from(cursor)[0] if cursor else -1
    for store_id, last in last_keys.items():
        if store_id >= first and last is not None:
            start = cursor[_CURSOR.size :] + b"\0" if store_id == first else b""  # the least key after the cursor's
            for key, value in base.scan(store_id, start, last + b"\0"):
                yield store_id, key, value
