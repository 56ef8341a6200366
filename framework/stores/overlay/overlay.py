"""The write batches above the state store of a task: open → frozen → read cache → StateStore (A8, A9).

User code writes into the open write batch. At a freeze it becomes immutable and a fresh one is put on top; once its
commit is valid it is written to the state store in chunks, and goes away with them. Dropping a write batch is the whole
rollback. No step of a commit takes longer the more is dirty: a freeze touches no key, all else goes by the slice.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice, repeat
from math import inf

from grete.errors import ConfigError, Halted
from grete.halts import HaltCode
from grete.ports import StateStore, Write
from grete.stores.overlay.expiring_store import BEFORE_ALL, horizon
from grete.stores.overlay.overlay_store import ENTRY_BYTES, Frozen, OverlayStore, WriteBatch
from grete.stores.overlay.rewrite_slice import BEGUN, slice_of
from grete.stores.sorted_view import Item

CHUNK_BYTES_MAX = 1 << 20  # of keys and values, or one key: what is written at once holds the GIL


class Overlay:
    """The write batches of all stores of one task. Not thread safe.

    Order obligations: ``freeze``, then data and commit in the changelog, valid by C3, then ``apply_chunk`` until True.
    What is frozen answers until the state store has it, so reads are right at every moment in between.
    """

    def __init__(
        self,
        store: StateStore,
        store_ids: Sequence[int],
        *,
        uncommitted_state_bytes_max: int,
        read_cache_bytes_max: int,
        expiring: Collection[int] = (),
    ) -> None:
        """``uncommitted_state_bytes_max`` bounds the open write batch (as much again may be frozen).

        ``read_cache_bytes_max`` bounds the read cache. ``expiring``: the ids of stores whose stored values begin with
        an expiry. Raises ConfigError for store ids that are not different INT16s ≥ 0.
        """
        if len(set(store_ids)) != len(store_ids) or not all(0 <= store_id < 1 << 15 for store_id in store_ids):
            raise ConfigError(f"store ids {list(store_ids)}: must be different and within 0 to 32767")
        self._base = store
        self._stores = {store_id: OverlayStore(self, store, store_id) for store_id in sorted(store_ids)}
        self._uncommitted_bytes_max = uncommitted_state_bytes_max
        self._cache_half = read_cache_bytes_max // 2  # two generations, each at most this
        self._cache_bytes = 0
        self.open_bytes = 0  # never too low; a key that is put again counts again until the next recount
        self.recount_bytes = uncommitted_state_bytes_max  # open_bytes beyond which it is counted exactly
        self.journal: list[tuple[OverlayStore, bytes, bytes | None]] | None = None
        self.undone = 0  # how often ``undo`` has taken writes back
        self.has_frozen = False  # a whole checkpoint
        self._frozen_count = 0  # writes that are frozen and not applied
        self._applied_count = 0
        self._unsent: Iterator[Write] = iter(())
        self.unsent_count = 0  # frozen writes that ``next_frozen`` has not returned
        self._round_last_keys: dict[int, bytes | None] = {}  # as of the first slice of a round that this process saw
        self._expiring = frozenset(expiring)
        # Where entries expire, event time, in a low id, is applied last: a reader beside must not take for expired
        # what the checkpoint of that time has put again.
        self._applied_in_order = sorted(self._stores, reverse=bool(expiring))
        self.event_time = BEFORE_ALL  # ms, of the checkpoint that is frozen: the owner sets it before the freeze
        self._expired: dict[int, WriteBatch] = {}  # keys that the rewrite has deleted, until they are applied

    @property
    def store_ids(self) -> list[int]:
        """The ids of all stores, in order."""
        return list(self._stores)

    def store(self, store_id: int) -> OverlayStore:
        """Return the handle of a store, valid for the life of the overlay. Raises ConfigError for an unknown id."""
        if store_id not in self._stores:
            raise ConfigError(f"store id {store_id} is not one of this task's stores {list(self._stores)}")
        return self._stores[store_id]

    # --- Writes of one record, taken back if the task raises ---

    def begin_undo(self) -> None:
        """Remember from here on what each write replaces, until ``undo`` or ``end_undo``."""
        self.journal = []

    def undo(self) -> None:
        """Take back all writes since ``begin_undo`` and end it."""
        journal, self.journal = self.journal, None
        self.undone += 1
        for store, key, value in reversed(journal or ()):
            store.restore(key, value)

    def end_undo(self) -> None:
        """Keep the writes since ``begin_undo``."""
        self.journal = None

    # --- The frozen write batch ---

    def freeze(self) -> None:
        """Make the open write batch immutable and put a fresh one on top (A8).

        This is allowed only if no whole checkpoint is frozen and no undo is open.
        """
        self.freeze_part()
        self.has_frozen = True

    def freeze_part(self) -> None:
        """Freeze what is dirty so far, ahead of its checkpoint's freeze, so that it can be sent (D5)."""
        assert not self.has_frozen, "freeze: the last frozen write batch has not been applied or dropped"
        assert self.journal is None, "freeze: within begin_undo and end_undo"
        for store_id, store in self._stores.items():
            if (part := store.freeze()) is not None:
                self._frozen_count += len(part.writes)
                self.unsent_count += len(part.writes)
                self._unsent = chain(self._unsent, zip(repeat(store_id), part.writes.keys(), part.writes.values()))
        self._reset_open()

    def next_frozen(self, keys_max: int) -> list[Write]:
        """Return the next frozen writes, to be sent; before any is applied."""
        writes = list(islice(self._unsent, keys_max))
        self.unsent_count -= len(writes)
        return writes

    def frozen_items(self) -> Iterator[Write]:
        """Yield (store id, key, value or None) of all that is frozen, by store id, then by key."""
        return chain.from_iterable(store.frozen_items() for store in self._stores.values())

    def apply_chunk(self, changelog_position: bytes, keys_max: int = 1000) -> bool:
        """Write the next dirty keys to the state store, the changelog position with the last.

        Return True when all are written. Call it only after the commit is valid (A7, A9). When it raises, nothing of
        the chunk was written: call it again.
        """
        assert self.has_frozen, "apply_chunk: nothing is frozen"
        self._freeze_expired()
        taken = self._chunk(keys_max)
        chunk = [(store_id, key, value) for store_id, _, writes in taken for key, value in writes]
        last = len(chunk) == self._frozen_count
        self._base.write(chunk, changelog_position if last else None)
        self._settle(taken, len(chunk))
        if last:
            self._forget_frozen()
        return last

    def _chunk(self, keys_max: int) -> list[tuple[int, Frozen, list[Item]]]:
        """Return (store id, part, its newest writes) of a chunk."""
        taken, left = [], keys_max
        for store_id in self._applied_in_order:
            store = self._stores[store_id]
            for part in store.parts:
                writes = store.newest(part, left, CHUNK_BYTES_MAX)
                taken.append((store_id, part, writes))
                left -= len(writes)
                if len(writes) < len(part.writes):
                    return taken
                if not left:
                    return taken
        return taken

    def _settle(self, taken: list[tuple[int, Frozen, list[Item]]], count: int) -> None:
        """Let the state store answer for a chunk. The last ones, as many as fit, go into the read cache, too."""
        size = sum(len(key) + len(value or b"") + ENTRY_BYTES for _, _, writes in taken for key, value in writes)
        keep = bool(count) and size * self._frozen_count // count <= self._cache_half and self.make_room(size)
        for store_id, part, writes in taken:
            self._stores[store_id].settle(part, writes, keep=keep)
        self._frozen_count -= count
        self._applied_count += count

    def drop_open(self) -> None:
        """Forget the open write batch (rollback, R4)."""
        for store in self._stores.values():
            store.drop_open()
        self.journal = None
        self._reset_open()

    def drop_all(self) -> None:
        """Forget all write batches and the read cache: then the state store alone answers.

        After some but not all chunks were applied that is no checkpoint at all: redo from the changelog position, or
        wipe (R1).
        """
        self.drop_open()
        for store in self._stores.values():
            store.drop_frozen()
            store.drop_cache()
        self._cache_bytes = 0
        self._forget_frozen()

    # --- The rewrite ---

    def rewrite(
        self, cursor: bytes, bytes_max: float, keys_max: int = 1000, deleted_bytes_max: float = inf
    ) -> tuple[list[Write], bytes, bool]:
        """Return a slice of a rewrite round as ``slice_of`` does, before any of what is frozen is applied (K2).

        What has expired at the event time of the checkpoint, not at that of records since, is deleted with it.
        """
        if bytes_max > 0 and (cursor in (b"", BEGUN) or not self._round_last_keys):
            self._round_last_keys = {store: self._base.last_key(store) for store in self._stores}
        least = horizon(self.event_time)
        writes, cursor, done = slice_of(
            self._base,
            self._round_last_keys,
            self._is_frozen,
            cursor,
            is_expired=lambda store_id, value: store_id in self._expiring and value < least,
            keys_max=keys_max,
            bytes_max=bytes_max,
            deleted_bytes_max=deleted_bytes_max,
        )
        for store_id, key, value in writes:
            if value is None:
                self._expired.setdefault(store_id, {})[key] = None
        return writes, cursor, done

    def _is_frozen(self, store_id: int, key: bytes) -> bool:
        return self._stores[store_id].is_frozen(key)

    def _freeze_expired(self) -> None:
        """Let the state store delete what the rewrite has deleted, below all writes of the checkpoint."""
        for store_id, deletes in self._expired.items():
            self._stores[store_id].freeze_below(deletes)
            self._frozen_count += len(deletes)
        self._expired = {}

    # --- Bounds; called by the stores ---

    def recount(self) -> None:
        """Count the open write batch exactly. Raises Halted if it has outgrown its bound (A9)."""
        sizes = [store.open_size() for store in self._stores.values()]
        self.open_bytes = sum(size[1] for size in sizes)
        if self.open_bytes > self._uncommitted_bytes_max:
            keys = sum(size[0] for size in sizes)
            raise Halted(
                f"uncommitted state of {keys} keys takes {self.open_bytes} bytes, more than setting "
                f"uncommitted_state_bytes_max = {self._uncommitted_bytes_max}: raise it, or make checkpoints smaller "
                "(lower checkpoint_interval_ms, more partitions)",
                setting="uncommitted_state_bytes_max",
                code=HaltCode.STATE_TOO_LARGE,
            )
        # The write batch may grow a sixteenth beyond its bound unseen, so that close to it not every put counts all
        # keys.
        self.recount_bytes = max(self._uncommitted_bytes_max, self.open_bytes + self._uncommitted_bytes_max // 16)

    def make_room(self, size: int) -> bool:
        """Account for a value of the read cache, or return False if it is too large to keep.

        When the recent ones fill their half of the cache they become the old ones, and those go.
        """
        if size > self._cache_half:
            return False
        self._cache_bytes += size
        if self._cache_bytes > self._cache_half:
            for store in self._stores.values():
                store.age_cache()
            self._cache_bytes = size
        return True

    def _forget_frozen(self) -> None:
        self.has_frozen = False
        self._frozen_count = self._applied_count = self.unsent_count = 0
        self._unsent = iter(())
        self._expired = {}

    def _reset_open(self) -> None:
        self.open_bytes = 0
        self.recount_bytes = self._uncommitted_bytes_max
