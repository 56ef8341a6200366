"""`grete run` and `grete check-determinism` on a deterministic job, as a user types them."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOB = """
import itertools

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

lines = Topic("lines", key=utf8, value=utf8)
chance = {chance}


class Count(Task):
    lines = Input(lines)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Topic("out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            n = self.counts.get(word, 0) + 1
            self.counts.put(word, n)
            self.out.send(word, str(n) + " " + next(chance))


job = Job("counting", [Count], mode="deterministic")
"""


def grete(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder."""
    command = [sys.executable, "-m", "grete.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_deterministic_job_is_run_and_verified(tmp_path: Path) -> None:
    """D3: the job runs to the end of its input; a replay makes the same of it; of a job by chance it does not."""
    (tmp_path / "job.py").write_text(JOB.format(chance='itertools.repeat("same")'))
    (tmp_path / "input.txt").write_text("to be or\nnot to be\n")
    ran = grete(tmp_path, "run", "job.py", "--input", "lines=input.txt")
    assert ran.returncode == 0, ran.stderr
    verified = grete(tmp_path, "check-determinism", "job.py")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "2 input records replayed, 6 outputs compared" in verified.stdout

    other = JOB.format(chance="map(str, itertools.count(id(object())))")
    (tmp_path / "job.py").write_text(other)
    differs = grete(tmp_path, "check-determinism", "job.py")
    assert differs.returncode == 1
    assert "first difference: out[0], record seq 1 of count-0" in differs.stdout
    assert "line 7: id (use" in differs.stdout


SLOW = """
import time

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

seen: list[str] = []


class Number(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Topic("out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        time.sleep(0.002)  # so that checkpoints come in between
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        seen.append(record.value)
        print("line", record.value)
        self.out.send(record.value, str(NUMBER))


job = Job("number", stages=[Number], mode="deterministic")
"""


def test_a_list_of_the_module_is_found_in_another_process(tmp_path: Path) -> None:
    """D3: a replay of all fills it as before; one from a later checkpoint shows it. With a store all is the same."""
    (tmp_path / "input.txt").write_text("".join(f"{number}\n" for number in range(150)))
    for folder, number, code in (("store", "count", 0), ("list", "len(seen)", 1)):
        (tmp_path / "job.py").write_text(SLOW.replace("NUMBER))", f"{number}))"))
        at = f"--directory={folder}"
        small = "--set=checkpoint_interval_ms=50", "--set=batch_bytes_max=200"
        ran = grete(tmp_path, "run", "job.py", "--input", "lines=input.txt", at, *small)
        assert ran.returncode == 0, ran.stderr
        checked = grete(tmp_path, "check-determinism", "job.py", at)
        assert checked.returncode == code, checked.stdout + checked.stderr
        assert "150 input records replayed, 150 outputs compared" in checked.stdout
        assert "in another process" in checked.stdout
        assert ("first difference: out[0]" in checked.stdout) == bool(code)
        suspicion = "line 18: variable of the module seen outlives a record"
        assert (suspicion in checked.stdout) == bool(code)


SINKS = """
import sqlite3

import msgspec

from grete import Files, Input, Job, Output, Record, Table, Task, Topic, json, utf8


class Row(msgspec.Struct):
    word: str
    line: str


class Write(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    files = Output(Files("words", utf8))
    rows = Output(Table("words.db", "words", json(Row), key=["word"]))
    out = Output(Topic("out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.files.send(None, word)
            self.rows.send(None, Row(word, record.value))
            self.out.send(word, record.value)


job = Job("writing", [Write], mode="deterministic")
"""


def test_verify_applies_nothing_to_files_and_tables(tmp_path: Path) -> None:
    """Files that a reader has moved away do not come back, and a missing or replaced database is not opened."""
    (tmp_path / "job.py").write_text(SINKS)
    (tmp_path / "input.txt").write_text("to be or\nnot to be\n")
    with contextlib.closing(sqlite3.connect(tmp_path / "words.db")) as database:
        database.execute("CREATE TABLE words (word TEXT PRIMARY KEY, line TEXT)")
    ran = grete(tmp_path, "run", "job.py", "--input", "lines=input.txt")
    assert ran.returncode == 0, ran.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "words.db")) as database:
        assert sorted(database.execute("SELECT word FROM words"))
    files = list((tmp_path / "words").iterdir())
    assert files
    for file in files:
        file.rename(tmp_path / file.name)
    (tmp_path / "words.db").rename(tmp_path / "elsewhere.db")
    verified = grete(tmp_path, "check-determinism", "job.py")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "all of them are the same" in verified.stdout
    assert list((tmp_path / "words").iterdir()) == []
    assert not (tmp_path / "words.db").exists()
