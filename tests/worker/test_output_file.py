"""The file that takes what a worker writes: bounded by the worker, followed by the supervisor."""

import os
from pathlib import Path

from grete.worker.pipes.output_file import Follower, OutputFile
from tests.cli.test_run import start


def test_a_large_file_is_rotated_and_no_line_is_missed(tmp_path: Path) -> None:
    """It and its predecessor are all that there is; who follows it gets each printed line once, and no log line."""
    path = tmp_path / "worker-0.log"
    path.write_text("of an earlier life\n")
    handle = os.open(os.devnull, os.O_WRONLY)
    follower, output = Follower(path), OutputFile(path, [handle], bytes_max=500)
    seen: list[str] = []
    for number in range(300):
        os.write(handle, b'line %d\n{"level": "INFO", "event": "ready"}\n' % number)
        output.rotate()
        if number % 7 == 0:
            seen += follower.printed()
    while found := follower.printed():
        seen += found
    os.write(handle, b"begun, ")
    assert follower.printed() == []
    os.write(handle, b"ended\n")
    assert follower.printed() == ["begun, ended"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["worker-0.log", "worker-0.log.1"]
    assert all(each.stat().st_size < 600 for each in tmp_path.iterdir())
    assert seen == [f"line {number}" for number in range(300)]
    follower.close()
    os.close(handle)


def test_a_print_on_a_full_disk_is_no_error_of_the_record(tmp_path: Path) -> None:
    """A failed print is left out; each record is processed, also where a failing one would be dropped."""
    (tmp_path / "count.py").write_text(
        """
import os, sys
from grete import Input, Job, Output, Record, Task, Topic, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8), errors="drop")
    out = Output(Topic("seen", key=utf8, value=utf8))

    def init(self):
        for handle in (1, 2):
            os.dup2(os.open("/dev/full", os.O_WRONLY), handle)

    def process(self, record: Record[str, str]) -> None:
        print("seen", record.value)
        print("seen", record.value, file=sys.stderr, flush=True)
        self.out.send(None, record.value)

job = Job("count", stages=[Count])
"""
    )
    (tmp_path / "lines.txt").write_text("a\nb\nc\n")
    process = start("run", "count.py", "--input=lines=lines.txt", cwd=tmp_path)
    process.communicate(timeout=120)
    assert process.returncode == 0
    process = start("topic", "read", "count.py", "seen", cwd=tmp_path)
    assert [line.split()[-1] for line in process.communicate(timeout=120)[0].splitlines()] == ["a", "b", "c"]


def test_a_line_that_never_ends_is_shown_in_pieces(tmp_path: Path) -> None:
    """Memory is bounded, and nothing is lost."""
    path = tmp_path / "worker-0.log"
    follower = Follower(path)
    path.write_text("x" * 20_000)
    assert follower.printed() == ["x" * 20_000]
    follower.close()
