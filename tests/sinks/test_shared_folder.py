"""Jobs that declare one directory for their files: who claims it goes on, each other one is refused and loses nothing.

That is rule S2 with real workers: two jobs, the job started afresh, a fork; a rescaled job keeps its directory.
"""

import shutil
from pathlib import Path

from tests.cli.test_run import start

JOB = """
from grete import Files, Input, Job, Output, Record, Task, Topic, json, utf8

LINES = Topic("lines", key=utf8, value=utf8)


class Archive(Task):
    lines = Input(LINES)
    out = Output(Files("out", json(str)))

    def process(self, record: Record[str, str]) -> None:
        self.out.send(None, "NAME " + record.value)


job = Job("NAME", stages=[Archive], partitions=COUNT)
"""


def code(folder: Path, name: str, partitions: int = 1) -> str:
    """Write a job that brings lines to the folder ``out``; return its file's name."""
    path = folder / f"{name}{partitions}.py"
    path.write_text(JOB.replace("NAME", name).replace("COUNT", str(partitions)))
    return path.name


def run(folder: Path, *arguments: str, lines: str = "") -> tuple[int, str]:
    """Run a command; return its exit code and what it said."""
    (folder / "lines.txt").write_text(lines)
    given = ["--input=lines=lines.txt"] if lines else []
    process = start(*arguments, *given, cwd=folder)
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def lines_in(folder: Path) -> list[str]:
    """Return all lines of a folder's files, without the quotes."""
    return sorted(line.strip('"') for path in folder.glob("part-*.jsonl") for line in path.read_text().splitlines())


def test_a_second_job_is_refused_and_its_outputs_come_once_it_may_write(tmp_path: Path) -> None:
    """Another job, the job in a second directory, a fork: each halts, and nothing of either is missing afterwards."""
    first, second, third = (code(tmp_path, name) for name in ("first", "second", "third"))
    told = run(tmp_path, "run", first, lines="a\nb\n")
    assert told[0] == 0, told
    assert lines_in(tmp_path / "out") == ["first a", "first b"]
    for arguments in (["run", second], ["run", first, "--directory=elsewhere"]):
        status, said = run(tmp_path, *arguments, lines="c\n")
        assert status == 4, said
        assert "GRETE-H042" in said
        assert "the files of task archive-0 there belong to" in said
    assert run(tmp_path, "fork", first, third)[0] == 0
    status, said = run(tmp_path, "run", third, lines="e\n")
    assert (status, "belong to job 'first'" in said) == (4, True), said
    told = run(tmp_path, "run", first, lines="d\n")
    assert told[0] == 0, told
    assert lines_in(tmp_path / "out") == ["first a", "first b", "first d"]
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in [*(tmp_path / "out").glob(".part-archive-0-*"), *(tmp_path / "out").glob("part-archive-0-*")]:
        path.rename(kept / path.name)
    told = run(tmp_path, "run", second)
    assert told[0] == 0, told
    assert lines_in(tmp_path / "out") == ["second c"]


def test_a_copy_beside_its_original_is_refused(tmp_path: Path) -> None:
    """Its state says that the folder is its own, too; once the original is gone, or has moved, it may go on."""
    first, copied = code(tmp_path, "first"), tmp_path / "copied"
    assert run(tmp_path, "run", first, lines="a\n")[0] == 0
    shutil.copytree(tmp_path / ".grete" / "first", copied)
    status, said = run(tmp_path, "run", first, "--directory=copied", lines="c\n")
    assert (status, f"copied is a copy of {tmp_path / '.grete' / 'first'}, where job 'first' has run" in said) == (
        2,
        True,
    )
    shutil.rmtree(tmp_path / ".grete")
    copied.rename(tmp_path / "moved")
    told = run(tmp_path, "run", first, "--directory=moved", lines="d\n")
    assert told[0] == 0, told
    assert lines_in(tmp_path / "out") == ["first a", "first d"]


def test_a_rescaled_job_keeps_its_directory(tmp_path: Path) -> None:
    """Tasks of before go on with their files, new ones begin theirs: each line is there once."""
    two, three = code(tmp_path, "first", 2), code(tmp_path, "first", 3)
    before, after = ([f"{number}{suffix}" for number in range(40)] for suffix in ("", "b"))
    assert run(tmp_path, "run", two, lines="\n".join(before) + "\n")[0] == 0
    told = run(tmp_path, "rescale", two, "--partitions=3")
    assert told[0] == 0, told
    told = run(tmp_path, "run", three, lines="\n".join([*before, *after]) + "\n")
    assert told[0] == 0, told
    assert set(lines_in(tmp_path / "out")) == {f"first {line}" for line in [*before, *after]}
