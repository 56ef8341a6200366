"""The simulated disk: what is loaded and not flushed may be lost in a crash; every host keeps what it had."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from framework.ports import Write
from framework.simulation.boundary import Boundary
from framework.simulation.usercode import STORES
from framework.stores.memory import MemoryDisk, MemoryStore
from framework.stores.overlay import Overlay
from framework.stores.sorted_view import SortedView
from framework.stores.spill import MemorySpill


@dataclass(slots=True)
class Host:
    """One machine's directory of one task. What another host has committed since makes it stale by itself."""

    number: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    backup: MemoryDisk | None = None
    in_use: bool = False


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """Return a copy that later writes do not reach."""
    stores = {store: SortedView(dict(view.values)) for store, view in disk.stores.items()}
    return MemoryDisk(dict(disk.names), stores, disk.pointer)


def content(disk: MemoryDisk) -> dict[tuple[int, bytes], bytes]:
    """Return all that the stores hold."""
    return {
        (store, key): value
        for store, view in disk.stores.items()
        for key, value in view.values.items()
        if value is not None
    }


class SimStore(MemoryStore):
    """ports.StateStore of one process. ``written`` is told of each write after it has happened."""

    def __init__(
        self, disk: MemoryDisk, boundary: Boundary, written: Callable[[Sequence[Write], bytes | None], None]
    ) -> None:
        super().__init__(STORES, disk)
        self._boundary = boundary
        self._written = written
        self._unflushed: list[tuple[int, list[Write]]] = []  # store, what the load replaced
        self.wiped_content = 0  # times that a store which held something was wiped

    def pointer(self) -> bytes | None:
        """Return the pointer written last."""
        self._boundary.before("pointer")
        return super().pointer()

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None."""
        self._boundary.before("get")
        return super().get(store, key)

    def scan(self, store: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Yield what lies between, in key order."""
        self._boundary.before("scan")
        return super().scan(store, start, end)

    def write(self, writes: Iterable[Write], pointer: bytes | None = None) -> None:
        """Apply writes and pointer atomically."""
        self._boundary.before("write")
        batch = list(writes)
        self._unflushed.clear()
        super().write(batch, pointer)
        self._written(batch, pointer)
        self._boundary.after("write")

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply columns; they survive a crash only after a flush."""
        self._boundary.before("load")
        held = self.disk.stores[store].values
        self._unflushed.append((store, [(store, key, held.get(key)) for key in keys]))
        super().write([(store, key, value) for key, value in zip(keys, values, strict=True)])
        self._boundary.after("load")

    def flush(self) -> None:
        """Make what was loaded survive."""
        self._boundary.before("flush")
        self._unflushed.clear()
        self._boundary.after("flush")

    def wipe(self) -> None:
        """Empty all."""
        self._boundary.before("wipe")
        self._unflushed.clear()
        self.wiped_content += bool(content(self.disk))
        super().wipe()
        self._boundary.after("wipe")

    def crash(self, rand: Callable[[], float]) -> None:
        """Lose the last loads of each store: how many is chance, and differs between the stores."""
        for store in STORES:
            loads = [before for of, before in self._unflushed if of == store]
            for before in reversed(loads[int(rand() * (len(loads) + 1)) :]):
                super().write(reversed(before))
        self._unflushed.clear()


class SimSpill(MemorySpill):
    """ports.Spill of one process."""

    def __init__(self, boundary: Boundary) -> None:
        super().__init__()
        self._boundary = boundary

    def clear(self) -> None:
        """Forget everything."""
        self._boundary.before("clear")
        super().clear()

    def put(self, payload: bytes) -> tuple[int, int]:
        """Keep a payload."""
        self._boundary.before("spill")
        place = super().put(payload)
        self._boundary.after("spill")
        return place

    def get(self, place: tuple[int, int]) -> bytes:
        """Return a payload."""
        self._boundary.before("unspill")
        return super().get(place)


class SimOverlay(Overlay):
    """The real overlay, with chunks small enough to be split."""

    chunk_keys = 1000

    def apply_chunk(self, pointer: bytes, keys_max: int = 1000) -> bool:
        """Write the next few dirty keys."""
        return super().apply_chunk(pointer, min(keys_max, self.chunk_keys))

    @property
    def half_applied(self) -> bool:
        """Whether some of a frozen layer is in the store, and some is not."""
        return self.has_frozen and self._applied_count > 0
