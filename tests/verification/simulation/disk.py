"""The simulated disk: what is loaded and not flushed may be lost in a crash; every host keeps what it had."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from grete.errors import StoreCorrupted
from grete.execution.timing.reserved_stores import META, OUTBOX, STREAM_TIME, TURN
from grete.ports import Write
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.overlay.overlay import Overlay
from grete.stores.sorted_view import SortedView
from grete.stores.spill import MemorySpill
from tests.verification.simulation.boundary import Boundary
from tests.verification.simulation.expiry_kind import FRESH, alive
from tests.verification.simulation.join_kind import STORE_IDS as JOIN_STORES
from tests.verification.simulation.usercode import PANES

_KEPT = {*JOIN_STORES.values(), FRESH}
_SEEN = {STREAM_TIME, TURN}  # of what the runtime keeps in META
LARGE = 20  # slices of a checkpoint: of 1,000 keys each where sizes are not scaled
HOSTS = 2  # of a task; more when all are in use
UNSYNCED = 40  # writes that the operating system may hold back at most


@dataclass(slots=True)
class Host:
    """One machine's directory of one task. What another host has committed since makes it stale by itself."""

    number: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    backup: MemoryDisk | None = None
    in_use: bool = False
    # what the last writes replaced: rows, changelog position. A power loss takes some of them back, the newest first.
    written: deque[tuple[list[Write], bytes | None]] = field(default_factory=lambda: deque(maxlen=UNSYNCED))

    def changed(self, writes: Sequence[Write], changelog_position: bytes | None) -> None:
        """Note what a write is about to replace; without a changelog position the old one stays."""
        stores = self.disk.stores
        before = [(store, key, stores[store].values.get(key)) for store, key, _ in writes]
        self.written.append((before, self.disk.changelog_position))

    def replace(self, disk: MemoryDisk) -> None:
        """Put other content in the place of this."""
        self.disk = disk
        self.written.clear()

    def lose_power(self, share: float) -> None:
        """Lose a share of the last writes, none of which was synced."""
        store = MemoryStore(self.disk.names, self.disk)
        for _ in range(int(share * len(self.written))):
            before, changelog_position = self.written.pop()
            store.write(reversed(before))
            self.disk.changelog_position = changelog_position
        self.written.clear()


class Hosts(dict[int, list[Host]]):
    """The machines that each task may run on, by task."""

    def __init__(self, tasks: Iterable[int], rand: Callable[[], float]) -> None:
        super().__init__({task: [Host(number) for number in range(HOSTS)] for task in tasks})
        self._last = dict.fromkeys(self, 0)
        self._rand = rand

    def take(self, task: int) -> Host:
        """Return one that is free; in half of the cases the last one, if it is."""
        hosts = self[task]
        free = [host for host in hosts if not host.in_use]
        if not free:
            free = [Host(len(hosts))]
            hosts += free
        host = free[int(self._rand() * len(free))]
        last = hosts[self._last[task]]
        if not last.in_use and self._rand() < 0.5:
            host = last
        self._last[task] = host.number
        return host


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """Return a copy that later writes do not reach."""
    stores = {store: SortedView(dict(view.values)) for store, view in disk.stores.items()}
    return MemoryDisk(dict(disk.names), stores, disk.changelog_position)


def is_seen(store: int, key: bytes) -> bool:
    """Tell whether the oracle keeps an entry.

    The outbox, most of META and what is remembered of inputs are judged by what they do (S2, D3).
    """
    return key in _SEEN if store == META else store != OUTBOX and (store <= PANES or store in _KEPT)


def content(disk: MemoryDisk) -> dict[tuple[int, bytes], bytes]:
    """Return all that the stores hold and the oracle keeps, but for what has expired."""
    held = {
        (store, key): value
        for store, view in disk.stores.items()
        for key, value in view.values.items()
        if value is not None and is_seen(store, key)
    }
    return alive(held)


class SimStore(MemoryStore):
    """ports.StateStore of one process. ``written`` is told of each write after it has happened."""

    def __init__(
        self,
        stores: Mapping[int, str],
        host: Host,
        boundary: Boundary,
        written: Callable[[Sequence[Write], bytes | None], None],
    ) -> None:
        super().__init__(stores, host.disk)
        self._host = host
        self._boundary = boundary
        self.corrupt = False
        self._positioned = False  # the next changelog position is that of a commit, not of a rollback marker
        self._written = written
        self._unflushed: list[tuple[int, list[Write]]] = []  # store, what the load replaced
        self.wiped_content = 0  # times that a store which held something was wiped

    def changelog_position(self) -> bytes | None:
        """Return the changelog position written last."""
        self._boundary.before("read changelog position")
        changelog_position = super().changelog_position()
        self._boundary.after("read changelog position")
        return changelog_position

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None."""
        self._boundary.before("get")
        self._read()
        value = super().get(store, key)
        self._boundary.after("get")
        return value

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values."""
        self._boundary.before("get")
        self._read()
        values = super().get_many(store, keys)
        self._boundary.after("get")
        return values

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries between two keys, in key order or from the last key on."""
        self._boundary.before("scan")
        self._read()
        rows = super().scan(store, start, end, reverse=reverse)
        self._boundary.after("scan")
        return rows

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Apply writes and changelog position atomically."""
        batch = list(writes)
        call = (
            "write chunk"
            if changelog_position is None
            else "write changelog position"
            if self._positioned
            else "write restored changelog position"
        )
        self._boundary.before(call)
        self._unflushed.clear()
        self._host.changed(batch, changelog_position)
        super().write(batch, changelog_position)
        self._positioned = self._positioned or changelog_position is not None
        self._written(batch, changelog_position)
        self._boundary.after(call)

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply columns; they survive a crash only after a flush."""
        self._boundary.before("load segment")
        self._host.changed([(store, key, None) for key in keys], None)
        held = self.disk.stores[store].values
        self._unflushed.append((store, [(store, key, held.get(key)) for key in keys]))
        super().write([(store, key, value) for key, value in zip(keys, values, strict=True)])
        self._boundary.after("load segment")

    def flush(self) -> None:
        """Make what was loaded survive."""
        self._unflushed.clear()

    def wipe(self) -> None:
        """Empty all."""
        self._boundary.before("wipe store")
        self._unflushed.clear()
        self.wiped_content += bool(content(self.disk))
        self._host.written.clear()  # by rename: durable
        super().wipe()
        self._boundary.after("wipe store")

    def _read(self) -> None:
        if self.corrupt:
            self._boundary.hit()
            raise StoreCorrupted("simulated: a block of the store does not match its checksum")

    def crash(self, rand: Callable[[], float]) -> None:
        """Lose the last loads of each store: how many is chance, and differs between the stores."""
        for store in self.disk.stores:
            loads = [before for of, before in self._unflushed if of == store]
            for before in reversed(loads[int(rand() * (len(loads) + 1)) :]):
                super().write(reversed(before))
        self._unflushed.clear()


class SimSpill(MemorySpill):
    """The SpillStore of one process."""

    def __init__(self, boundary: Boundary) -> None:
        super().__init__()
        self._boundary = boundary

    def clear(self) -> None:
        """Forget everything."""
        self._boundary.before("clear spill")
        super().clear()
        self._boundary.after("clear spill")

    def put(self, payload: bytes) -> tuple[int, int]:
        """Keep a payload."""
        self._boundary.before("spill")
        place = super().put(payload)
        self._boundary.after("spill")
        return place

    def get(self, place: tuple[int, int]) -> bytes:
        """Return a payload."""
        self._boundary.before("read a spilled frame")
        payload = super().get(place)
        self._boundary.after("read a spilled frame")
        return payload


class SimOverlay(Overlay):
    """The real overlay, with slices and chunks so small that a checkpoint has several."""

    chunk_keys = 1000
    slices = 0  # of the frozen write batch that were sent
    large = 0  # checkpoints of LARGE slices or more

    def freeze_part(self) -> None:
        """Freeze what is dirty."""
        super().freeze_part()
        self.slices = 0

    def next_frozen(self, keys_max: int) -> list[Write]:
        """Return the next few frozen writes."""
        writes = super().next_frozen(min(keys_max, self.chunk_keys))
        self.slices += bool(writes)
        self.large += self.slices == LARGE
        return writes

    @property
    def half_sent(self) -> bool:
        """Whether some slices of a large frozen write batch were sent, and some were not."""
        unsent = self.frozen.unsent_count
        return 0 < unsent and self.slices > 0 and self.slices + unsent // self.chunk_keys >= LARGE

    def rewrite(
        self, cursor: bytes, bytes_max: float, keys_max: int = 1000, deleted_bytes_max: float = inf
    ) -> tuple[list[Write], bytes, bool]:
        """Return a few keys to rewrite."""
        return super().rewrite(cursor, bytes_max, min(keys_max, self.chunk_keys), deleted_bytes_max)

    def apply_chunk(self, changelog_position: bytes, keys_max: int = 1000) -> bool:
        """Write the next few dirty keys."""
        return super().apply_chunk(changelog_position, min(keys_max, self.chunk_keys))

    @property
    def half_applied(self) -> bool:
        """Whether some of a frozen write batch is in the store, and some is not."""
        return self.frozen.whole and self.frozen.applied_count > 0
