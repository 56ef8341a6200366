"""Progress of a task in its current batch, for a watching thread and for metrics."""

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any

from grete.api.record import Record


class Reading:
    """The loops over records set it once a batch; then the iterator of the batch moves. Nothing is done per record."""

    __slots__ = ("_batches", "_begun", "_keys", "left", "record", "timers")

    def __init__(self) -> None:
        self._batches = self._begun = self.timers = 0
        self.left = 0  # records of the last batch that wait for the timers before them
        self.record: Record[Any, Any] | None = None  # in process, of a task whose windows set late ones aside
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
    def at_work(self) -> tuple[Sequence[bytes | None], int] | None:
        """Return the keys of the batch under way, and the index of the record that is processed; None: there is none.

        Another thread asks: the iterator says where it is.
        """
        state = self._keys.__reduce__()
        if isinstance(state, str) or len(state) < 3:  # it is at its end
            return None
        keys, taken = state[1][0], state[2]
        return (keys, taken - 1) if 0 < taken <= len(keys) else None

    @property
    def progress(self) -> tuple[int, int, int]:
        """Return counters that change with each batch, record and timer."""
        return self._batches, length_hint(self._keys), self.timers
