"""Files as a sink: whole files only, applied once."""

from pathlib import Path

import pytest

from framework.errors import TransientError
from framework.sinks.files import apply_outbox


def test_applied_twice_is_applied_once(tmp_path: Path) -> None:
    """The second application finds the file and leaves it alone (S2)."""
    path = apply_outbox(str(tmp_path / "deep" / "out"), "stage", 3, 7, [b"a", b"b"])
    assert path == tmp_path / "deep" / "out" / "part-stage-3-7.jsonl"
    assert path.read_bytes() == b"a\nb\n"
    before = path.stat().st_ino
    assert apply_outbox(str(tmp_path / "deep" / "out"), "stage", 3, 7, [b"a", b"b"]) == path
    assert path.stat().st_ino == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_crash_while_writing_leaves_no_part_file(tmp_path: Path) -> None:
    """A failure in the middle shows no file of the final name, and what is left over is overwritten."""

    def broken() -> object:
        yield b"a"
        raise OSError("disk full")

    with pytest.raises(TransientError, match="disk full"):
        apply_outbox(str(tmp_path), "stage", 0, 1, broken())  # type: ignore[arg-type]  # an iterator of entries
    assert list(tmp_path.glob("part-*")) == []
    assert apply_outbox(str(tmp_path), "stage", 0, 1, [b"b"]).read_bytes() == b"b\n"
    assert len(list(tmp_path.iterdir())) == 1
