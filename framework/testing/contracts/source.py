"""The contract of a source: each of its records comes into a topic once (grete.clients.source)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grete.clients.source import ExternalSource, SourceRecord
from grete.testing.contracts.clauses import Contract

READS_MAX = 1_000  # until a source that still gives records is taken for one that never ends


class SourceWorld:
    """One empty system. ``connect`` returns a source of it, not open yet, as another process would have it.

    ``put`` adds a number of records that differ from one another behind those that are there.
    """

    def __init__(self, connect: Callable[[], ExternalSource[Any, Any]], put: Callable[[int], None]) -> None:
        self.put = put
        self._connect = connect
        self._opened: list[ExternalSource[Any, Any]] = []

    def source(self, position: str | None) -> ExternalSource[Any, Any]:
        """Return the source as another process has it, open. It is closed with the world."""
        self._opened.append(self._connect())
        self._opened[-1].open(position)
        return self._opened[-1]

    def close(self) -> None:
        """Close all of them."""
        for source in self._opened:
            source.close()


Read = list[tuple[list[SourceRecord[Any, Any]], str]]  # what each read returned


def reads(source: ExternalSource[Any, Any]) -> Read:
    """Return the result of each read, until there is nothing."""
    found: Read = []
    for _ in range(READS_MAX):
        records, position = source.read()
        if not records:
            return found
        found.append((list(records), position))
    raise AssertionError(f"after {READS_MAX} reads there are still records")


def records_of(read: Read) -> list[SourceRecord[Any, Any]]:
    """Return the records of some reads."""
    return [record for records, _ in read for record in records]


class SourceContract(Contract):
    """The contract of a source. Subclass it in a test module, and override the fixture ``world``.

    class TestMySource(SourceContract):
        @pytest.fixture
        def world(self, tmp_path):
            return SourceWorld(lambda: MySource(tmp_path), lambda count: add_to(tmp_path, count))
    """

    port = "source"

    @pytest.fixture
    def world(self) -> SourceWorld:
        """Return an empty system. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `world` that returns a SourceWorld")

    @pytest.fixture(autouse=True)
    def _closed(self, world: SourceWorld) -> Iterator[None]:
        yield
        world.close()

    def test_every_process_reads_the_same_records_in_the_same_order(self, world: SourceWorld) -> None:
        """From the beginning, each of them once; a second open begins there again."""
        world.put(50)
        source = world.source(None)
        first = records_of(reads(source))
        assert len(first) == 50
        source.open(None)
        assert records_of(reads(source)) == first
        assert records_of(reads(world.source(None))) == first

    def test_from_each_position_the_rest_is_read(self, world: SourceWorld) -> None:
        """In any process: what was read before a position and what is read behind it, together, are all records."""
        for _ in range(5):
            world.put(20)
        all_ = reads(world.source(None))
        assert len(records_of(all_)) == 100
        for done, (_, position) in enumerate(all_, 1):
            before, behind = records_of(all_[:done]), records_of(reads(world.source(position)))
            assert before + behind == records_of(all_)

    def test_what_comes_later_is_behind_a_position(self, world: SourceWorld) -> None:
        """A source that was read to its end goes on with what is new, in the same process and in the next one."""
        world.put(3)
        source = world.source(None)
        old = reads(source)
        position = old[-1][1]
        world.put(2)
        assert len(records_of(reads(source))) == 2
        new = records_of(reads(world.source(position)))
        assert len(new) == 2
        assert records_of(reads(world.source(None))) == records_of(old) + new

    def test_a_read_of_nothing_keeps_the_position(self, world: SourceWorld) -> None:
        """A source with nothing new gives no record; behind the position that it tells, what comes next is read."""
        world.put(3)
        source = world.source(None)
        reads(source)
        records, position = source.read()
        assert list(records) == []
        world.put(1)
        assert len(records_of(reads(world.source(position)))) == 1

    def test_a_source_without_records_is_no_trouble(self, world: SourceWorld) -> None:
        """It is opened and read before its first record is there."""
        source = world.source(None)
        assert list(source.read()[0]) == []
        world.put(2)
        assert len(records_of(reads(source))) == 2
