"""One commit's share of a changelog rewrite: live keys after a cursor, read from the state store (K2)."""

import struct
from collections.abc import Callable, Iterable, Iterator

from framework.errors import Halted
from framework.ports import StateStore

Entry = tuple[int, bytes, bytes]  # store id, key, value

_CURSOR = struct.Struct(">h")  # store id; the key follows


def slice_of(
    base: StateStore,
    store_ids: Iterable[int],
    is_frozen: Callable[[int, bytes], bool],
    cursor: bytes,
    *,
    keys_max: int,
    bytes_max: int,
) -> tuple[list[Entry], bytes, bool]:
    """Return (live keys after ``cursor`` as (store id, key, value), next cursor, whether the round is done) (K2).

    Keys for which ``is_frozen`` are left out, because the commit's own data hold them. So what remains is what the
    state store and the frozen checkpoint agree on, however many chunks have been applied. ``store_ids``: in order.
    A slice passes at most ``keys_max`` keys, dirty ones included, and ends once it holds ``bytes_max`` bytes of
    keys and values (so at least one key is passed). Cursor: INT16 store id + key passed last; b"" starts a round,
    and is what a finished round returns.
    Raises Halted for a cursor that cannot be one.
    """
    assert keys_max > 0, "rewrite: keys_max must be positive, or the round never ends"
    if 0 < len(cursor) < _CURSOR.size:
        raise Halted(
            f"rewrite cursor {cursor!r}: need {_CURSOR.size} bytes of store id and a key; the commit is damaged"
        )
    rewritten: list[Entry] = []
    size = 0
    for passed, (store_id, key, value) in enumerate(_rows_after(base, store_ids, cursor)):
        if passed == keys_max or (passed and size >= bytes_max):
            return rewritten, cursor, False
        cursor = _CURSOR.pack(store_id) + key
        if not is_frozen(store_id, key):
            rewritten.append((store_id, key, value))
            size += len(key) + len(value)
    return rewritten, b"", True


def _rows_after(base: StateStore, store_ids: Iterable[int], cursor: bytes) -> Iterator[Entry]:
    first = _CURSOR.unpack_from(cursor)[0] if cursor else -1
    for store_id in store_ids:
        if store_id >= first:
            start = cursor[_CURSOR.size :] + b"\0" if store_id == first else b""  # the least key after the cursor's
            for key, value in base.scan(store_id, start, None):
                yield store_id, key, value
