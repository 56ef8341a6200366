"""The tests of a third party for its own back ends: the text of a test module, which is played elsewhere."""

from collections.abc import Callable, Mapping

import pytest
from third_party import DictStore, Disk, ListSink, Place  # type: ignore[import-not-found]  # beside it there

from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import StateStore
from grete.testing.contracts import LogContract, LogWorld, SinkContract, SinkWorld, StoreContract


class TestStore(StoreContract):
    """The store in a dict."""

    @pytest.fixture
    def open_store(self) -> Callable[[Mapping[int, str]], StateStore]:
        """Return a function that opens the same store each time."""
        disk = Disk()
        return lambda names: DictStore(names, disk)


class TestSink(SinkContract):
    """The sink in a list."""

    @pytest.fixture
    def world(self) -> SinkWorld:
        """Return an empty list."""
        place = Place()
        return SinkWorld(lambda: ListSink(place), place.content)


class TestLog(LogContract):
    """A log that is not written here, as any other one would be named."""

    @pytest.fixture
    def world(self) -> LogWorld:
        """Return an empty log."""
        data = MemoryLogData(lambda: world.now_ms)
        world = LogWorld(lambda: MemoryLog(data), sets_clock=True)
        return world
