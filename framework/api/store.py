"""A task's key-value state, as its author sees it."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, overload

from grete.api.registry.schema_registry import refuse_registry
from grete.api.serdes.avro_serde import refuse_was
from grete.api.serdes.serde import Serde, key_serde, refuse_no_serde, refuse_unread
from grete.errors import ConfigError, TaskError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Store(Generic[K, V]):
    """A class attribute of a task: a durable, partitioned map. On the running task the methods below are bound.

    Values are encoded at put and decoded at get (A8): changing an object that was put changes nothing, put it again.
    Scans see the store as it was when they began, in the order of encoded keys: utf8 by code points, int64 by number;
    with ``reverse`` from the last key on. They read as you iterate: the first row costs no more than a get.
    Every method raises TaskError on a store that is not part of a running task, and SerdeError on a bad key or value.
    """

    def __init__(
        self, name: str, key: Serde[K], value: Serde[V], *, ttl_ms: int | None = None, renamed_from: str | None = None
    ) -> None:
        """Declare the store. The first start pins its name and serdes; docs/guides/evolve.md says what may change.

        ``ttl_ms``: an entry is there until event time (see Timers) is ``ttl_ms`` after the timestamp of the record, or
        the time of the timer, that put it last; then no read shows it, and it is deleted from the state some time
        later. Each put begins its time again, and a read does not. ``renamed_from``: the name that the store had first,
        which its state has for good. Raises ConfigError on a ttl_ms below 1 ms.
        """
        if ttl_ms is not None and (type(ttl_ms) is not int or ttl_ms < 1):
            raise ConfigError(f"store {name!r}: ttl_ms = {ttl_ms!r}: need an int of 1 ms or more, or None")
        refuse_was(key, f"the key of store {name}")
        for serde in (key, value):
            refuse_no_serde(serde, f"store {name}")
            refuse_registry(serde, f"store {name}")
            refuse_unread(serde, f"store {name}")
        self.name = renamed_from or name
        self.shown = name
        self.key = key_serde(key)
        self.value = value
        self.ttl_ms = ttl_ms

    @overload
    def get(self, key: K) -> V | None: ...

    @overload
    def get(self, key: K, default: D) -> V | D: ...

    def get(self, key: K, default: object = None) -> object:
        """Return the value, or ``default``."""
        raise self._unbound()

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the value of each key, or None, in the order of ``keys``: one read of RocksDB for all of them."""
        raise self._unbound()

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        raise self._unbound()

    def put_many(self, items: Iterable[tuple[K, V]]) -> None:
        """Set the value of each (key, value), in their order; if a serde refuses one of them, none is set."""
        raise self._unbound()

    def delete(self, key: K) -> None:
        """Remove a key; nothing happens if it is not there."""
        raise self._unbound()

    def range(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Yield (key, value) with start <= key < end; None leaves that side open."""
        raise self._unbound()

    def prefix(self, prefix: K | tuple[Any, ...], *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with the encoded ``prefix``: for utf8 and bytes keys.

        Of a Key, ``prefix`` has its first parts; if it has all, the last one is the beginning of a part.
        """
        raise self._unbound()

    def all(self, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Yield every (key, value)."""
        raise self._unbound()

    def _unbound(self) -> TaskError:
        return TaskError(
            f"store {self.name!r} is a declaration here: it holds data only on a task that Grete runs "
            "(self.<attribute> in init, process, on_timer, …); in tests use grete.testing"
        )
