"""Early frames on disk, by the key that the core knows them by (A4)."""

from collections.abc import Iterable

from grete.execution.task_code.ports import SpillStore


class SpilledFrames:
    """The part of a task's early buffer on disk: a cache, empty at the start."""

    def __init__(self, spill: SpillStore) -> None:
        self._spill = spill
        self._places: dict[int, tuple[int, int]] = {}

    def put(self, key: int, payload: bytes) -> None:
        """Write a frame to disk."""
        assert key not in self._places, f"two early frames have the key {key}"
        self._places[key] = self._spill.put(payload)

    def take(self, key: int) -> bytes:
        """Read a frame back and forget it. Raises StoreCorrupted if it is not what was written."""
        payload = self._spill.get(self._places[key])
        self.drop((key,))
        return payload

    def drop(self, keys: Iterable[int]) -> None:
        """Forget frames; when none waits any more, their file is emptied."""
        for key in keys:
            del self._places[key]
        if not self._places:
            self._spill.clear()

    def clear(self) -> None:
        """Forget all of them."""
        self._places.clear()
        self._spill.clear()
