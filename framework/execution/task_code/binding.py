"""Turns the declarations of a task class into what its instance holds: copies whose methods are closures over state.

Everything known at the start (serdes, write batches, destinations) is a local variable of a closure: no lookups later.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from grete.api.serdes.key import prefix_of
from grete.api.serdes.serde import decode_error, encode_error, functions_of, placing_in_store
from grete.api.stateful.declaration import Give, Stateful
from grete.api.store import Store
from grete.api.tasks.methods import refuse_return
from grete.execution.calls.effects import IsolatedStore
from grete.execution.records.outputs import Outputs
from grete.execution.timing.floors import Floors
from grete.execution.timing.timers import TimerQueue
from grete.stores.overlay.expiring_store import ExpiringStore
from grete.stores.overlay.overlay_store import OverlayStore

T = TypeVar("T")
S = TypeVar("S", bound=Stateful)
Rows = Iterator[tuple[bytes, bytes]]
TaskEntries = OverlayStore | ExpiringStore | IsolatedStore


def bound(declaration: T, **methods: object) -> T:
    """Return a copy of a declaration whose methods are those given: same type for readers and checkers, no dispatch."""
    twin = copy.copy(declaration)
    vars(twin).update(methods)
    return twin


def expiring(
    declared: Store[Any, Any], overlay: OverlayStore, timers: TimerQueue, outputs: Outputs, floors: Floors
) -> OverlayStore | ExpiringStore:
    """Return the entries of a user's store; with ``ttl_ms`` they live as long after the record that puts them."""
    if declared.ttl_ms is None:
        return overlay
    placing = placing_in_store(declared.key)
    floor = floors.of if placing is None else lambda key: floors.of(placing(key))
    times = (lambda: timers.now), (lambda: outputs.timestamp), floor
    return ExpiringStore(declared.name, overlay, declared.ttl_ms, *times)


def bind_store(declared: Store[Any, Any], overlay: TaskEntries) -> Store[Any, Any]:
    """Return the store over the overlay: encodes at put, decodes at get (A8)."""
    where = f"store {declared.name}: "
    encode_key = functions_of(declared.key)[0]
    encode_value, decode_value = functions_of(declared.value)
    batch_get, batch_put, batch_delete = overlay.get, overlay.put, overlay.delete

    def get(key: Any, default: Any = None) -> Any:
        try:
            raw_key = encode_key(key)
        except Exception as error:
            raise encode_error(declared.key, key, error, where) from error
        raw = batch_get(raw_key)
        if raw is None:
            return default
        try:
            return decode_value(raw)
        except Exception as error:
            raise decode_error(declared.value, raw, error, where) from error

    def put(key: Any, value: Any) -> None:
        try:
            raw_key = encode_key(key)
        except Exception as error:
            raise encode_error(declared.key, key, error, where) from error
        try:
            raw = encode_value(value)
        except Exception as error:
            raise encode_error(declared.value, value, error, where, key=key) from error
        batch_put(raw_key, raw)

    def delete(key: Any) -> None:
        try:
            raw_key = encode_key(key)
        except Exception as error:
            raise encode_error(declared.key, key, error, where) from error
        if batch_get(raw_key) is not None:  # else a tombstone would go to the changelog for nothing
            batch_delete(raw_key)

    many = _many(declared, overlay, where)
    return bound(declared, get=get, put=put, delete=delete, **many, **_scans(declared, overlay, where))


def _many(declared: Store[Any, Any], overlay: TaskEntries, where: str) -> dict[str, Callable[..., object]]:
    """Return get_many and put_many."""
    encode_key = functions_of(declared.key)[0]
    encode_value, decode_value = functions_of(declared.value)
    batch_get_many, batch_put = overlay.get_many, overlay.put

    def encoded(keys: Iterable[Any]) -> Iterator[bytes]:
        for key in keys:
            try:
                raw_key = encode_key(key)
            except Exception as error:
                raise encode_error(declared.key, key, error, where) from error
            yield raw_key

    def get_many(keys: Iterable[Any]) -> list[Any]:
        found = list[Any]()
        for raw in batch_get_many([*encoded(keys)]):
            try:
                found.append(None if raw is None else decode_value(raw))
            except Exception as error:
                raise decode_error(declared.value, raw, error, where) from error
        return found

    def put_many(items: Iterable[tuple[Any, Any]]) -> None:
        pairs = [*items]
        raw_keys, raws = [*encoded(key for key, _ in pairs)], list[bytes]()
        for key, value in pairs:
            try:
                raws.append(encode_value(value))
            except Exception as error:
                raise encode_error(declared.value, value, error, where, key=key) from error
        for raw_key, raw in zip(raw_keys, raws, strict=True):
            batch_put(raw_key, raw)

    return {"get_many": get_many, "put_many": put_many}


def _scans(declared: Store[Any, Any], overlay: TaskEntries, where: str) -> dict[str, Callable[..., object]]:
    """Return range, prefix and all. The scan of the write batch begins at the call, not at the first row."""
    batch_scan = overlay.scan
    encode_key, decode_key = functions_of(declared.key)
    encode_prefix = prefix_of(declared.key)
    decode_value = functions_of(declared.value)[1]

    def encoded(key: Any, encode: Callable[[Any], bytes] = encode_key) -> bytes:
        try:
            return encode(key)
        except Exception as error:
            raise encode_error(declared.key, key, error, where) from error

    def decoded(rows: Rows) -> Iterator[tuple[Any, Any]]:
        for raw_key, raw in rows:
            try:
                row = decode_key(raw_key), decode_value(raw)
            except Exception as error:
                raise decode_error(declared.value, (raw_key, raw), error, where) from error
            yield row

    def range_(start: Any = None, end: Any = None, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        first, behind = b"" if start is None else encoded(start), None if end is None else encoded(end)
        return decoded(batch_scan(first, behind, reverse=reverse))

    def prefix(prefix: Any, *, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        raw = encoded(prefix, encode_prefix)
        return decoded(batch_scan(raw, after_prefix(raw), reverse=reverse))

    def all_(*, reverse: bool = False) -> Iterator[tuple[Any, Any]]:
        return decoded(batch_scan(b"", None, reverse=reverse))

    return {"range": range_, "prefix": prefix, "all": all_}


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the least key greater than every key that starts with ``prefix``; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None


def bind_stateful(
    declared: S,
    overlay_of: Callable[[str], OverlayStore],
    timers: TimerQueue,
    floors: Floors,
    outputs: Outputs,
    task: object,
    guard: Callable[[Give], Give],
    *,
    undone: Callable[[], int],
) -> S:
    """Return a window, join or versioned store over its stores, its timers, the task's event time and its method.

    ``overlay_of`` gives the overlay of a store by name. ``guard`` adds the error policy to the calls that no record
    makes. ``undone``: see Stateful.
    """
    method = declared.method
    call: Callable[[Any], object] = getattr(task, method) if method else lambda _: None

    def give(result: Any, timestamp: int | None) -> None:
        before = outputs.timestamp
        if timestamp is not None:
            outputs.timestamp = timestamp
        if (returned := call(result)) is not None:
            refuse_return(method, returned)
        outputs.timestamp = before

    twin = bound(
        declared,
        **{name: bind_store(store, overlay_of(store.name)) for name, store in declared.stores().items()},
        schedule=partial(timers.schedule, declared.name),
        time_for=_time_for(declared, timers, floors),
        give=give,
        give_due=guard(give),
        late=0,
    )
    twin.begin(undone)
    return twin


def _time_for(declared: Stateful, timers: TimerQueue, floors: Floors) -> Callable[[Any], int]:
    """Return the function that tells the event time for a key of a window, join or versioned store."""
    encode_key, placing = functions_of(declared.key)[0], placing_in_store(declared.key)

    def time_for(key: Any) -> int:
        if not floors.kept:
            return timers.now
        try:
            raw_key = encode_key(key)
        except Exception as error:
            raise encode_error(declared.key, key, error, f"{declared.what} {declared.name}: ") from error
        return max(timers.now, floors.of(raw_key if placing is None else placing(raw_key)))

    return time_for
