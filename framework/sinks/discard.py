"""Replaces files and tables where a task's history is replayed: it takes everything, and opens and keeps nothing."""

from collections.abc import Sequence

from grete.api.sinks.sink import Entry, Owner


class DiscardSink:
    """A Sink that drops what it is given. ``name``: of the target that it replaces."""

    def __init__(self, name: str) -> None:
        """Open nothing."""
        self.name = name

    def open(self, owner: Owner) -> int | None:
        """Return None: which checkpoints were applied is not kept."""
        return None

    def begin(self, checkpoint_id: int) -> bool:
        """Take every checkpoint."""
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Drop the entries."""

    def commit(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
