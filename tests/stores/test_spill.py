"""The spill of early frames: what comes back is what was put, or an error."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import ConfigError, StoreCorrupted, TransientError
from grete.stores.spill import FileSpill, MemorySpill

Spill = FileSpill | MemorySpill


@pytest.fixture(params=["file", "memory"])
def spill(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spill]:
    """Return an empty spill."""
    spill: Spill = FileSpill(tmp_path / "spill") if request.param == "file" else MemorySpill()
    yield spill
    spill.close()


@given(payloads=st.lists(st.binary(max_size=40), max_size=20))
def test_payloads_come_back_in_any_order(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    """Each place gives its payload, as often as asked, also after a clear and in both kinds."""
    for spill in (FileSpill(tmp_path_factory.mktemp("spill")), MemorySpill()):
        spill.put(b"forgotten")
        spill.clear()
        places = [spill.put(payload) for payload in payloads]
        for _ in range(2):
            assert [spill.get(place) for place in reversed(places)] == payloads[::-1]
        spill.close()


def test_a_place_from_before_a_clear_is_refused(spill: Spill) -> None:
    """A stale place must not give another payload: not from an empty spill, nor from one filled again (A5)."""
    place = spill.put(b"old")
    spill.clear()
    with pytest.raises(StoreCorrupted):
        spill.get(place)
    spill.put(b"new")
    with pytest.raises(StoreCorrupted):
        spill.get(place)


@pytest.mark.parametrize("place", [(-1, 0), (0, 1), (3, 0), (10**12, 0)])
def test_a_place_that_never_was_is_refused(spill: Spill, place: tuple[int, int]) -> None:
    """Any numbers give an error, not bytes."""
    spill.put(b"payload")
    with pytest.raises(StoreCorrupted):
        spill.get(place)


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    """Size and payload are covered by the checksum."""
    spill = FileSpill(tmp_path)
    place = spill.put(b"a payload of an early frame")
    file = tmp_path / "early.spill"
    whole = file.read_bytes()
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(StoreCorrupted, match=r"early\.spill"):
            spill.get(place)
    file.write_bytes(whole)
    assert spill.get(place) == b"a payload of an early frame"
    file.write_bytes(b"")
    with pytest.raises(StoreCorrupted):
        spill.get(place)
    spill.close()


def test_a_full_disk_is_transient_and_loses_nothing(tmp_path: Path) -> None:
    """A failed put loses no earlier payload, and the next put that fits works."""
    spill = FileSpill(tmp_path)
    first = spill.put(b"x" * 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(TransientError, match="early_bytes_max"):
            spill.put(b"y" * 10_000)
        second = spill.put(b"z" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (spill.get(first), spill.get(second)) == (b"x" * 1000, b"z" * 1000)
    spill.close()


def test_a_new_start_is_empty_and_apart_from_a_dying_predecessor(tmp_path: Path) -> None:
    """A process that still runs writes into its own file, not into its successor's (A5)."""
    dying = FileSpill(tmp_path)
    old = dying.put(b"old" * 10)
    spill = FileSpill(tmp_path)
    with pytest.raises(StoreCorrupted):
        spill.get(old)
    place = spill.put(b"new" * 10)
    dying.put(b"late" * 10)
    dying.clear()
    assert spill.get(place) == b"new" * 10
    dying.close()
    spill.close()


def test_the_file_gives_its_space_back(tmp_path: Path) -> None:
    """Clear and close leave no bytes on the disk."""
    spill = FileSpill(tmp_path)
    spill.put(b"x" * 10_000)
    spill.clear()
    assert (tmp_path / "early.spill").stat().st_size == 0
    spill.close()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    """A file in the way is a matter of settings."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="file"):
        FileSpill(tmp_path / "file")
