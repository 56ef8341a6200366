"""Files as a sink: what the contract of sinks (tests/contracts/test_sink.py) does not say."""

import os
from pathlib import Path

import pytest

from framework.api.sink import Owner
from framework.errors import TransientError
from framework.sinks.files import FilesSink

OWNER = Owner("job", "stage-3", "nonce")


def apply(sink: FilesSink, checkpoint_id: int, *lines: bytes) -> None:
    """Apply a checkpoint."""
    if sink.begin(checkpoint_id):
        sink.write([("out", line) for line in lines])
        sink.commit()


def test_a_checkpoint_is_a_file_of_lines(tmp_path: Path) -> None:
    """The directory is made; the file is named after task and checkpoint, and readable as any file of the user's is."""
    sink = FilesSink(str(tmp_path / "deep" / "out"))
    assert sink.open(OWNER) is None
    apply(sink, 7, b"a", b"b")
    (path,) = (tmp_path / "deep" / "out").iterdir()
    assert (path.name, path.read_bytes()) == ("part-stage-3-7.jsonl", b"a\nb\n")
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_drafts_of_a_crash_are_deleted_and_no_others(tmp_path: Path) -> None:
    """What this task has left half written goes; drafts of other tasks and checkpoints of ours stay."""
    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    sink.begin(1)
    sink.write([("out", b"half")])
    other = FilesSink(str(tmp_path))
    other.open(Owner("job", "stage-3-4", "nonce"))
    other.begin(1)
    assert len(list(tmp_path.iterdir())) == 2
    FilesSink(str(tmp_path)).open(OWNER)
    assert [path.name.split(".")[1] for path in tmp_path.iterdir()] == ["part-stage-3-4-1"]
    sink.close()
    other.close()


def test_an_instance_that_lost_its_draft_finds_the_file(tmp_path: Path) -> None:
    """A zombie whose draft the successor has deleted fails, tries again and changes nothing."""
    zombie, successor = FilesSink(str(tmp_path)), FilesSink(str(tmp_path))
    zombie.open(OWNER)
    assert zombie.begin(1)
    zombie.write([("out", b"a")])
    successor.open(OWNER)
    apply(successor, 1, b"a")
    before = (tmp_path / "part-stage-3-1.jsonl").stat().st_ino
    with pytest.raises(TransientError, match=r"cannot write .*part-stage-3-1\.jsonl"):
        zombie.commit()
    zombie.open(OWNER)
    assert not zombie.begin(1)
    assert (tmp_path / "part-stage-3-1.jsonl").stat().st_ino == before


def test_a_full_disk_is_transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while the file is made durable shows no file of the final name, and the next try succeeds."""
    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(TransientError, match="No space left"):
            apply(sink, 1, b"a")
    assert list(tmp_path.glob("part-*")) == []
    sink.open(OWNER)
    apply(sink, 1, b"b")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"b\n"]
