"""Outputs to files: with the checkpoint that made them, once, whatever crashes in between (S2)."""

from pathlib import Path

import pytest

from grete import DeadLetter, Files, Input, Job, Output, Record, Task, Topic, json, utf8
from grete.errors import SerdeError, TaskError
from grete.execution.sinks.sink_targets import no_sinks
from grete.execution.timing.reserved_stores import FILES_OWNER, OUTBOX
from tests.execution.harness import Rig

LINES = Topic("lines", key=utf8, value=utf8)


def job(directory: Path) -> Job:
    """Return a job that writes each line to files, and some to a second directory."""

    class Export(Task):
        lines = Input(LINES, errors=DeadLetter(Topic("letters", key=utf8, value=utf8)))
        out = Output(Files(str(directory), value=json))
        second = Output(Files(str(directory / "second"), value=utf8))

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, {"line": record.value})
            if record.key == "both":
                self.second.send(None, record.value)
            if record.key == "fail":
                raise ValueError

    return Job("j", stages=[Export])


def files(directory: Path) -> dict[str, str]:
    """Return name → content of all files below the directory, hidden ones too, but for the owner's."""
    found = [p for p in sorted(directory.rglob("*")) if p.is_file() and not p.name.endswith("-owner")]
    return {str(p.relative_to(directory)): p.read_text() for p in found}


def feed(rig: Rig, *lines: str, key: bytes = b"") -> None:
    """Process lines."""
    rig.rows("lines", [(key, line.encode(), 1) for line in lines])


def test_outputs_of_a_commit_that_the_store_has_not_yet_are_on_their_way(tmp_path: Path) -> None:
    """The log has the commit, and the store takes it in steps: a run that ended then would leave out the file."""
    rig = Rig(job(tmp_path))
    outbox = rig.processor.outbox
    rig.settle()
    told = [outbox.settled]
    feed(rig, "a")
    rig.freeze()
    told.append(outbox.settled)
    assert rig.overlay.apply_chunk(b"pointer")
    rig.processor.after_commit()
    told.append(outbox.settled)
    rig.settle()
    assert [*told, outbox.settled] == [True, False, False, True]


def test_a_checkpoint_is_a_file(tmp_path: Path) -> None:
    """Nothing shows before the commit. Then the checkpoint's lines are in one file, named after task and checkpoint."""
    rig = Rig(job(tmp_path))
    feed(rig, "a", "b")
    rig.freeze()
    assert files(tmp_path) == {}
    assert rig.overlay.apply_chunk(b"pointer")
    rig.processor.after_commit()
    rig.settle()
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n{"line":"b"}\n'}
    feed(rig, "c")
    rig.commit()
    rig.commit()
    assert files(tmp_path)["part-export-0-2.jsonl"] == '{"line":"c"}\n'
    assert len(files(tmp_path)) == 2, "a checkpoint without outputs makes no file"


def test_each_output_has_its_directory(tmp_path: Path) -> None:
    """Two outputs to files of one task do not mix."""
    rig = Rig(job(tmp_path))
    feed(rig, "a", key=b"both")
    feed(rig, "b")
    rig.commit()
    assert files(tmp_path) == {
        "part-export-0-1.jsonl": '{"line":"a"}\n{"line":"b"}\n',
        "second/part-export-0-1.jsonl": "a\n",
    }


def test_outputs_made_while_a_checkpoint_commits_belong_to_the_next(tmp_path: Path) -> None:
    """An output sent after the freeze waits for its own checkpoint (A8)."""
    rig = Rig(job(tmp_path))
    feed(rig, "a")
    rig.freeze()
    feed(rig, "b")
    assert rig.overlay.apply_chunk(b"pointer")
    rig.processor.after_commit()
    rig.settle()
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n'}
    rig.commit()
    assert files(tmp_path)["part-export-0-2.jsonl"] == '{"line":"b"}\n'


@pytest.mark.parametrize("applied", [False, True])
def test_a_crash_after_the_commit_loses_and_repeats_nothing(tmp_path: Path, *, applied: bool) -> None:
    """A committed checkpoint is applied at the start; one that was applied already stays as it is (S2)."""
    rig = Rig(job(tmp_path))
    feed(rig, "a")
    rig.freeze()
    assert rig.overlay.apply_chunk(b"pointer")
    if applied:
        rig.processor.after_commit()
        rig.settle()
    again = Rig(job(tmp_path), disk=rig.disk)
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n'}
    again.checkpoint_id = 1
    feed(again, "b")
    again.commit()
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n', "part-export-0-2.jsonl": '{"line":"b"}\n'}


def test_a_rollback_takes_uncommitted_outputs_back(tmp_path: Path) -> None:
    """An uncommitted output never becomes a file, and its replay is not mixed with it (R4)."""
    rig = Rig(job(tmp_path))
    feed(rig, "a")
    rig.commit()
    feed(rig, "lost")
    rig.rollback()
    feed(rig, "again")
    rig.commit()
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n', "part-export-0-2.jsonl": '{"line":"again"}\n'}


def test_applied_entries_leave_the_state_in_the_next_checkpoint(tmp_path: Path) -> None:
    """The outbox does not grow: entries are deleted in the checkpoint after the one that was applied."""
    rig = Rig(job(tmp_path))
    feed(rig, "a", "b")
    rig.commit()
    assert len(rig.disk.stores[OUTBOX].values) == 3, "a block, what the checkpoint holds, and whose it is"
    rig.commit()
    assert set(rig.disk.stores[OUTBOX].values) == {FILES_OWNER}


def test_a_dead_letter_takes_its_lines_with_it(tmp_path: Path) -> None:
    """Lines of a record that failed are undone, and those around it stand in order."""
    rig = Rig(job(tmp_path))
    feed(rig, "a")
    held = rig.processor.external_bytes
    feed(rig, "bad", key=b"fail")
    assert len(rig.external()) == 1
    assert rig.processor.external_bytes == held
    feed(rig, "b")
    rig.commit()
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n{"line":"b"}\n'}


def test_waiting_entries_count_as_held_back(tmp_path: Path) -> None:
    """The size of what waits for its commit grows with each line and is zero after (A8)."""
    rig = Rig(job(tmp_path))
    feed(rig, "x" * 1000)
    assert rig.processor.external_bytes >= 1000
    rig.commit()
    assert rig.processor.external_bytes == 0


def test_a_newline_is_refused(tmp_path: Path) -> None:
    """A value that would be two lines is refused by name."""
    rig = Rig(job(tmp_path))
    with pytest.raises(SerdeError, match=r"output to files .*second: a value of serde utf8 has a newline"):
        rig.task.second.send(None, "a\nb")
    with pytest.raises(TaskError, match="serde utf8 cannot encode int 5"):
        rig.task.second.send(None, 5)


def test_a_directory_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """The task goes on; after a back-off, once the way is free, every checkpoint is applied, in order."""
    directory = tmp_path / "out"
    directory.write_text("in the way")
    rig = Rig(job(directory))
    outbox = rig.processor.outbox
    assert not outbox.ready
    assert "cannot write" in (outbox.trouble or "")
    feed(rig, "a")
    rig.commit()
    feed(rig, "b")
    rig.commit()
    assert outbox.waiting_bytes >= 2
    directory.unlink()
    assert not outbox.work(rig.now_ms), "not before the back-off is over"
    rig.now_ms += outbox.due_in_ms(rig.now_ms)
    rig.settle()
    assert (outbox.ready, outbox.settled, outbox.trouble, outbox.waiting_bytes) == (True, True, None, 0)
    assert files(directory) == {"part-export-0-1.jsonl": '{"line":"a"}\n', "part-export-0-2.jsonl": '{"line":"b"}\n'}


def test_what_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    """The bytes that a sink has not taken count from the start on: they stop the task at its bound (1.8 S2)."""
    directory = tmp_path / "out"
    directory.write_text("in the way")
    rig = Rig(job(directory))
    feed(rig, "x" * 5000)
    rig.commit()
    waiting = rig.processor.outbox.waiting_bytes
    assert waiting > 5000
    assert Rig(job(directory), disk=rig.disk).processor.outbox.waiting_bytes == waiting


def test_a_checkpoint_of_many_blocks_is_applied_block_by_block(tmp_path: Path) -> None:
    """A checkpoint larger than a block keeps its order, and a dead letter takes whole blocks with it."""
    rig = Rig(job(tmp_path))
    lines = [f"{n:06}" + "x" * 1000 for n in range(900)]
    feed(rig, *lines)
    feed(rig, "y" * 600_000, key=b"fail")
    feed(rig, "end")
    rig.freeze()
    blocks = list(rig.overlay.store(OUTBOX).scan(b"b", b"c"))
    assert len(blocks) >= 4
    while not rig.overlay.apply_chunk(b"pointer"):
        pass
    rig.processor.after_commit()
    rig.settle()
    assert files(tmp_path)["part-export-0-1.jsonl"].splitlines() == [f'{{"line":"{line}"}}' for line in [*lines, "end"]]
    rig.commit()
    assert set(rig.disk.stores[OUTBOX].values) == {FILES_OWNER}


def test_a_rollback_while_a_checkpoint_is_applied_applies_it_once(tmp_path: Path) -> None:
    """The application under way begins again: the file is whole, and there is one."""
    rig = Rig(job(tmp_path))
    feed(rig, *["z" * 1000] * 600)
    rig.freeze()
    assert rig.overlay.apply_chunk(b"pointer")
    rig.processor.after_commit()
    for _ in range(3):  # begun, and a block written
        assert rig.processor.outbox.work(rig.now_ms)
    rig.rollback()
    assert [(name, len(text.splitlines())) for name, text in files(tmp_path).items()] == [
        ("part-export-0-1.jsonl", 600)
    ]


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "no more declared"])
def test_without_sinks_a_restored_checkpoint_is_not_applied_to_files(tmp_path: Path, *, declared: bool) -> None:
    """A replay brings back checkpoints that wait for their files, and leaves the files alone."""
    rig = Rig(job(tmp_path))
    feed(rig, "a")
    rig.freeze()
    while not rig.overlay.apply_chunk(b"pointer"):
        pass

    class Nothing(Task):
        name = "export"
        lines = Input(LINES)

        def process(self, record: Record[str, str]) -> None: ...

    again = Rig(job(tmp_path) if declared else Job("j", stages=[Nothing]), disk=rig.disk, sinks=no_sinks)
    assert again.processor.outbox.settled
    assert files(tmp_path) == {}
    Rig(job(tmp_path), disk=rig.disk)
    assert files(tmp_path) == {"part-export-0-1.jsonl": '{"line":"a"}\n'}
