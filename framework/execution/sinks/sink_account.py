"""The account that a task keeps of its sinks: by which id they know it, and which checkpoint each table has (S2)."""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from os import urandom

import msgspec

from grete.execution.sinks.waiting_outputs import ClosedOutputs
from grete.execution.timing.reserved_stores import FILES_OWNER
from grete.stores.overlay.overlay_store import OverlayStore

# output → last checkpoint applied and deleted here; an id that tells us from a namesake
_ACCOUNT, _NONCE = b"account", b"nonce"
NONE_YET = -1  # of an account: no checkpoint was applied


class SinkAccount:
    """Part of the task's state. ``nonce``: the id; it is kept once anything is in a sink, or may be."""

    def __init__(self, store: OverlayStore) -> None:
        self.nonce = b""
        self._store = store
        self._kept: dict[str, int] = {}  # table → last checkpoint applied to its database; none: its row was made
        self._took: dict[str, int] = {}  # the same, of what is applied and not deleted yet
        self._made: set[str] = set()  # tables whose database has our row, since this start

    def reload(self, pending: Collection[ClosedOutputs]) -> None:
        """Start from the restored state; ``pending``: what waits there."""
        self._kept = msgspec.json.decode(self._store.get(_ACCOUNT) or b"{}", type=dict[str, int])
        self._took, self._made = {}, set()
        self.nonce = self._store.get(_NONCE) or self._store.get(FILES_OWNER) or _new_nonce(pending).encode()

    def keep_nonce(self, *, only_files: bool = False) -> None:
        """Put the id into the state, unless it is there."""
        key = FILES_OWNER if only_files else _NONCE
        if self._store.get(_NONCE) is None and self._store.get(key) is None:
            self._store.put(key, self.nonce)

    def known(self, tables: Iterable[str]) -> int | None:
        """Return the last checkpoint that a database of these tables is known to have; None: not even our row."""
        return max((self._kept[table] for table in tables if table in self._kept), default=None)

    def opened(self, tables: Iterable[str]) -> None:
        """Take note that the database of these tables has our row."""
        self._made.update(tables)

    def applied(self, tables: Sequence[str], checkpoint_id: int) -> None:
        """Take note that these tables have a checkpoint."""
        assert all(self._kept.get(table, NONE_YET) < checkpoint_id for table in tables), "a sink went back"
        self._took |= dict.fromkeys(tables, checkpoint_id)

    def save(self, *, has_outputs: bool) -> None:
        """Put what was noted into the checkpoint to come; ``has_outputs``: it has some, so that rows made are worth it.

        What is applied is deleted in the same one.
        """
        made = dict.fromkeys(sorted(self._made - self._kept.keys()), NONE_YET) if has_outputs else {}
        if made or self._took:
            self._kept |= made | self._took
            self._store.put(_ACCOUNT, msgspec.json.encode(self._kept))
        self._took = {}


def _new_nonce(pending: Collection[ClosedOutputs]) -> str:
    """Return the id that tells us from a namesake; it stays while checkpoints of release 0.3.0 wait without one."""
    return sha256(msgspec.json.encode(list(pending))).hexdigest()[:16] if pending else urandom(8).hex()
