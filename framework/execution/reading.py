"""How far a task has read its input, for a thread that watches it."""

from collections.abc import Iterator
from operator import length_hint


class Reading:
    """The loops over records set it once a batch; then the iterator of the batch moves. Nothing is done per record."""

    __slots__ = ("_batches", "_keys", "timers")

    def __init__(self) -> None:
        self._batches = self.timers = 0
        self._keys: Iterator[bytes | None] = iter(())

    def begin(self, keys: Iterator[bytes | None]) -> None:
        """Note the keys of a batch, which its loop takes one by one."""
        self._keys = keys
        self._batches += 1

    @property
    def progress(self) -> tuple[int, int, int]:
        """Return what changes with each batch, record and timer."""
        return self._batches, length_hint(self._keys), self.timers
