"""Progress of a task in its current batch, for a watching thread and for metrics."""

from collections.abc import Iterator
from operator import length_hint


class Reading:
    """The loops over records set it once a batch; then the iterator of the batch moves. Nothing is done per record."""

    __slots__ = ("_batches", "_begun", "_keys", "left", "timers")

    def __init__(self) -> None:
        self._batches = self._begun = self.timers = 0
        self.left = 0  # records of the last batch that wait for the timers before them
        self._keys: Iterator[bytes | None] = iter(())

    def begin(self, keys: Iterator[bytes | None]) -> None:
        """Note the keys of a batch, which its loop takes one by one."""
        self._begun += length_hint(keys) - length_hint(self._keys)
        self._keys = keys
        self._batches += 1

    @property
    def records(self) -> int:
        """Return the number of records taken since the process started; after a rollback some count again."""
        return self._begun - length_hint(self._keys)

    @property
    def progress(self) -> tuple[int, int, int]:
        """Return counters that change with each batch, record and timer."""
        return self._batches, length_hint(self._keys), self.timers
