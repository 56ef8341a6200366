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
from grete.stores.overlay.expiring_store import BEFORE_ALL
from grete.stores.overlay.overlay_store import ENTRY_BYTES, CacheRoom, Frozen, OverlayStore, WriteBatch
from grete.stores.overlay.rewrite_slice import RewriteRounds
from grete.stores.sorted_view import Item

CHUNK_BYTES_MAX = 1 << 20  # of keys and values, or one key: what is written at once holds the GIL


class FrozenWrites:
    """Progress of the frozen write batch: sent in the order in which it was frozen, then applied.

    ``whole``: all of the checkpoint is frozen. ``left``: writes that the state store has not taken.
    """

    __slots__ = ("_unsent", "applied_count", "left", "unsent_count", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.left = self.applied_count = 0
        self.unsent_count = 0  # writes that ``next_unsent`` has not returned
        self._unsent: Iterator[Write] = iter(())

    def add(self, store_id: int, writes: WriteBatch) -> None:
        """Take what was frozen of a store."""
        self.left += len(writes)
        self.unsent_count += len(writes)
        self._unsent = chain(self._unsent, zip(repeat(store_id), writes.keys(), writes.values()))

    def next_unsent(self, keys_max: int) -> list[Write]:
        """Return the next writes, to be sent."""
        writes = list(islice(self._unsent, keys_max))
        self.unsent_count -= len(writes)
        assert self.unsent_count >= 0, "a frozen write was sent twice"
        return writes

    def applied(self, count: int) -> None:
        """Take note of more entries in the state store."""
        assert count <= self.left, "the state store was given more than what was frozen"
        self.left -= count
        self.applied_count += count


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
        self.cache = CacheRoom(read_cache_bytes_max, self._stores.values())
        self.open_bytes = 0  # never too low; a key that is put again counts again until the next recount
        self.recount_bytes = uncommitted_state_bytes_max  # open_bytes beyond which it is counted exactly
        self.journal: list[tuple[OverlayStore, bytes, bytes | None]] | None = None
        self.undone = 0  # how often ``undo`` has taken writes back
        self.frozen = FrozenWrites()
        self.rewrites = RewriteRounds(store, self._stores, expiring)
        # Where entries expire, event time, in a low id, is applied last: a reader beside must not take for expired
        # what the checkpoint of that time has put again.
        self._applied_in_order = sorted(self._stores, reverse=bool(expiring))
        self.event_time = BEFORE_ALL  # ms, of the checkpoint that is frozen: the owner sets it before the freeze

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
        self.frozen.whole = True

    def freeze_part(self) -> None:
        """Freeze what is dirty so far, ahead of its checkpoint's freeze, so that it can be sent (D5)."""
        assert not self.frozen.whole, "freeze: the last frozen write batch has not been applied or dropped"
        assert self.journal is None, "freeze: within begin_undo and end_undo"
        for store_id, store in self._stores.items():
            if (part := store.freeze()) is not None:
                self.frozen.add(store_id, part.writes)
        self._reset_open()

    def next_frozen(self, keys_max: int) -> list[Write]:
        """Return the next frozen writes, to be sent; before any is applied."""
        return self.frozen.next_unsent(keys_max)

    def frozen_items(self) -> Iterator[Write]:
        """Yield (store id, key, value or None) of all that is frozen, by store id, then by key."""
        return chain.from_iterable(store.frozen_items() for store in self._stores.values())

    def apply_chunk(self, changelog_position: bytes, keys_max: int = 1000) -> bool:
        """Write the next dirty keys to the state store, the changelog position with the last.

        Return True when all are written. Call it only after the commit is valid (A7, A9). When it raises, nothing of
        the chunk was written: call it again.
        """
        assert self.frozen.whole, "apply_chunk: nothing is frozen"
        self._freeze_expired()
        taken = self._chunk(keys_max)
        chunk = [(store_id, key, value) for store_id, _, writes in taken for key, value in writes]
        last = len(chunk) == self.frozen.left
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
        keep = bool(count) and self.cache.takes(size * self.frozen.left // count, size)
        for store_id, part, writes in taken:
            self._stores[store_id].settle(part, writes, keep=keep)
        self.frozen.applied(count)

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
        self.cache.drop()
        self._forget_frozen()

    # --- The rewrite ---

    def rewrite(
        self, cursor: bytes, bytes_max: float, keys_max: int = 1000, deleted_bytes_max: float = inf
    ) -> tuple[list[Write], bytes, bool]:
        """Return a slice of a rewrite round as ``slice_of`` does, before any of what is frozen is applied (K2).

        What has expired at the event time of the checkpoint, not at that of records since, is deleted with it.
        """
        return self.rewrites.next_slice(
            cursor,
            event_time=self.event_time,
            keys_max=keys_max,
            bytes_max=bytes_max,
            deleted_bytes_max=deleted_bytes_max,
        )

    def _freeze_expired(self) -> None:
        """Let the state store delete what the rewrite has deleted, below all writes of the checkpoint."""
        for store_id, deletes in self.rewrites.take_expired().items():
            self._stores[store_id].freeze_below(deletes)
            self.frozen.left += len(deletes)

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

    def _forget_frozen(self) -> None:
        self.frozen = FrozenWrites()
        self.rewrites.take_expired()

    def _reset_open(self) -> None:
        self.open_bytes = 0
        self.recount_bytes = self._uncommitted_bytes_max
