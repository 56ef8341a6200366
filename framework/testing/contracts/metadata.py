"""The contract of a job's metadata: the port grete.ports.JobMetadata."""

from collections.abc import Callable

import pytest

from grete.ports import JobMetadata
from grete.testing.contracts.clauses import Contract


class MetadataContract(Contract):
    """The clauses of it. Subclass it as LogContract is subclassed, and override the fixture ``begin``.

    ``begin`` returns the metadata of one job, empty at first, each time as another process has it.
    """

    port = "metadata"

    @pytest.fixture
    def begin(self) -> Callable[[], JobMetadata]:
        """Return the metadata of a job, as another process has it. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `begin` that returns a job's metadata")

    def test_what_is_put_is_read(self, begin: Callable[[], JobMetadata]) -> None:
        """Metadata is there for each process that comes later, until None is put; by a prefix in the order of keys."""
        writer = begin()
        writer.produce_with_meta([], {"b": b"2", "a": b"1", "x": b""})
        writer.produce_with_meta([], {"b": b"3", "x": None})
        for metadata in (writer, begin()):
            assert (metadata.meta_items(""), metadata.meta_get("x")) == ([("a", b"1"), ("b", b"3")], None)

    def test_the_first_pin_over_an_entry_counts(self, begin: Callable[[], JobMetadata]) -> None:
        """Of two processes that pin over the same entry the first does, and knows it; nothing of the other is read."""
        for over, made in ((None, b"1"), (b"1", b"2")):
            first, second = begin(), begin()
            assert first.meta_get("a") == second.meta_get("a") == over
            assert first.pin({"a": made, "b": made + b"b"}, over)
            assert not second.pin({"a": b"late", "b": None, "c": b"late"}, over)
            for metadata in (second, begin()):
                assert metadata.meta_items("") == [("a", made), ("b", made + b"b")]

    def test_a_pin_over_what_is_gone_is_late(self, begin: Callable[[], JobMetadata]) -> None:
        """A plain write comes between; so does what takes an entry away. Who has read that pins."""
        late, writer = begin(), begin()
        assert late.meta_get("a") is None
        writer.produce_with_meta([], {"a": b"1"})
        assert not late.pin({"a": b"late"}, None)
        late = begin()
        assert late.meta_get("a") == b"1"
        writer.produce_with_meta([], {"a": None})
        assert not late.pin({"a": b"late"}, b"1")
        assert begin().meta_get("a") is None
        assert late.pin({"a": b"2"}, None)
        assert begin().meta_get("a") == b"2"

    def test_the_same_pin_twice_is_there(self, begin: Callable[[], JobMetadata]) -> None:
        """A process that pins what another one has just pinned is told that it is there."""
        first, second = begin(), begin()
        assert first.meta_get("a") == second.meta_get("a")
        assert first.pin({"a": b"1"}, None)
        assert second.pin({"a": b"1"}, None)
