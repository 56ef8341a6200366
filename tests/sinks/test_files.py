"""Files as a sink: what the contract of sinks (tests/contracts/test_sink.py) does not say."""

import os
from pathlib import Path
from typing import Any

import pytest

from grete import Files, json, utf8
from grete.api.sinks.sink import Owner, Released
from grete.errors import Halted, SerdeError, TransientError
from grete.execution.sinks.sink_targets import sinks_of
from grete.halts import HaltCode
from grete.sinks.files import FilesSink, line_encoder

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
    (path,) = (tmp_path / "deep" / "out").glob("[!.]*")
    assert (path.name, path.read_bytes()) == ("part-stage-3-7.jsonl", b"a\nb\n")
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_drafts_of_a_crash_are_deleted_and_no_others(tmp_path: Path) -> None:
    """A task's own unfinished drafts are deleted; drafts of other tasks and finished checkpoints stay."""
    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    sink.begin(1)
    sink.write([("out", b"half")])
    other = FilesSink(str(tmp_path))
    other.open(Owner("job", "stage-3-4", "nonce"))
    other.begin(1)
    assert len(list(tmp_path.glob(".*.draft"))) == 2
    FilesSink(str(tmp_path)).open(OWNER)
    assert [path.name.split(".")[1] for path in tmp_path.glob(".*.draft")] == ["part-stage-3-4-1"]
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
    assert [path.read_bytes() for path in tmp_path.glob("[!.]*")] == [b"b\n"]


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applied outputs are deleted from the state, so bytes and names must be synced before."""
    done = list[str]()
    sync, rename, link = os.fsync, Path.rename, os.link

    def synced(handle: int) -> None:
        sync(handle)
        name = Path(f"/proc/self/fd/{handle}").readlink()
        done.append("sync of the directory" if name == tmp_path else f"sync of {name.suffix or name.name}")

    def renamed(path: Path, to: Path) -> Path:
        done.append("name")
        return rename(path, to)

    def linked(source: Path, to: Path) -> None:
        done.append("name")
        link(source, to)

    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    apply(sink, 1, b"a")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    monkeypatch.setattr(os, "link", linked)
    apply(sink, 2, b"b")
    assert done == ["sync of .draft", "name", "sync of the directory"]
    sink.last_released(1)
    done.clear()
    sink.release(0, Released(1, 5, 0), [("out", b"a")])
    assert done == ["sync of draft", "name", "sync of the directory"]


def test_a_value_of_two_lines_is_refused_where_it_is_sent() -> None:
    """A reader would count one output more, and might parse neither; JSON has no such value."""
    plain: Files[Any] = Files("out", value=utf8)
    encoded = line_encoder(plain)
    assert encoded("one line") == b"one line"
    with pytest.raises(SerdeError, match=r"files out: a value of serde utf8 has a newline in it: .*: use json"):
        encoded("two\nlines")
    objects: Files[Any] = Files("out", value=json)
    assert line_encoder(objects)("two\nlines") == b'"two\\nlines"'


STRANGERS = [Owner("another", "stage-3", "nonce"), Owner("job", "stage-3", "another nonce")]


@pytest.mark.parametrize("stranger", STRANGERS, ids=["another job", "another life"])
def test_a_directory_takes_one_job_until_its_files_are_moved(tmp_path: Path, stranger: Owner) -> None:
    """A second job, or the job started afresh, is refused before it writes; the way that the error names works."""
    out = tmp_path / "out"
    first, second = FilesSink(str(out)), FilesSink(str(out))
    first.open(OWNER)
    apply(first, 1000, b"a")
    second.open(stranger)
    with pytest.raises(Halted, match=r"belong to .*job 'job'") as refused:
        apply(second, 2000, b"b")
    assert refused.value.code is HaltCode.SINK_OF_ANOTHER_JOB
    apply(first, 2000, b"c")
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in [*out.glob("part-stage-3-*"), *out.glob(".part-stage-3-*")]:
        path.rename(kept / path.name)
    second.open(stranger)
    apply(second, 2000, b"b")
    assert [path.read_bytes() for path in out.glob("part-*")] == [b"b\n"]
    with pytest.raises(Halted, match="belong to"):
        apply(first, 3000, b"d")


def test_an_earlier_life_that_wrote_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    """A job whose files were all taken away may be followed by a new one; the former one is refused then."""
    first, second = FilesSink(str(tmp_path)), FilesSink(str(tmp_path))
    first.open(OWNER)
    apply(first, 1000, b"a")
    (tmp_path / "part-stage-3-1000.jsonl").unlink()
    second.open(STRANGERS[1])
    apply(second, 2000, b"b")
    with pytest.raises(Halted, match="an earlier life of job 'job', or another job of its name"):
        apply(first, 2000, b"c")


def test_files_of_a_release_that_claimed_none_go_on(tmp_path: Path) -> None:
    """A checkpoint that it had applied has the same bytes; others before it are ours, too, and from then on all are."""
    (tmp_path / "part-stage-3-1000.jsonl").write_bytes(b"a\n")
    (tmp_path / "part-stage-3-2000.jsonl").write_bytes(b"b\n")
    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    apply(sink, 2000, b"b")
    assert not sink.begin(2000)
    apply(sink, 3000, b"c")
    assert [path.read_bytes() for path in sorted(tmp_path.glob("part-*"))] == [b"a\n", b"b\n", b"c\n"]
    other = FilesSink(str(tmp_path))
    other.open(STRANGERS[0])
    with pytest.raises(Halted, match="belong to job 'job'"):
        apply(other, 4000, b"d")


@pytest.mark.parametrize("checkpoint_id", [1000, 2000], ids=["behind", "the same"])
def test_files_without_a_claim_that_are_not_ours_are_left_alone(tmp_path: Path, checkpoint_id: int) -> None:
    """A file of the same name with other lines, or one that is ahead, is of another job: none of ours is lost to it."""
    (tmp_path / "part-stage-3-2000.jsonl").write_bytes(b"a\n")
    sink = FilesSink(str(tmp_path))
    sink.open(OWNER)
    with pytest.raises(Halted, match=r"another job, or an earlier life of job 'job' \("):
        apply(sink, checkpoint_id, b"b")
    assert [path.read_bytes() for path in tmp_path.glob("part-*")] == [b"a\n"]


def test_two_spellings_of_a_directory_are_one_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two outputs of a task share the checkpoint's file, or the second one's would count as applied."""
    monkeypatch.chdir(tmp_path)
    sinks = sinks_of({name: Files(place, utf8) for name, place in [("a", "out"), ("b", "./out"), ("c", "other")]})
    assert sinks["files:out"] is sinks["files:./out"]
    assert sinks["files:out"] is not sinks["files:other"]
