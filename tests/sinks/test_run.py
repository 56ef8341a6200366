"""``grete run`` with a sink that does not answer at first."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

JOB = """
from grete import Input, Job, Output, Record, Table, Task, Topic, json, utf8

LINES = Topic("lines", key=utf8, value=utf8)


class Export(Task):
    lines = Input(LINES)
    out = Output(Table("env:WORDS_DATABASE", "words", json, columns=["word"], key=["word"]))

    def process(self, record: Record[str, str]) -> None:
        self.out.send(None, {"word": record.value})


job = Job("export", stages=[Export])
"""


def test_a_run_ends_when_its_table_has_everything(tmp_path: Path) -> None:
    """While another program holds the database the run says so and waits; then it ends with every row there (S2)."""
    (tmp_path / "export.py").write_text(JOB)
    (tmp_path / "lines.txt").write_text("a\nb\na\n")
    path = tmp_path / "words.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE words (word TEXT PRIMARY KEY)")
    other.execute("BEGIN IMMEDIATE")
    run = subprocess.Popen(
        [sys.executable, "-m", "grete.cli", "run", "export.py", "--input", "lines=lines.txt"],
        cwd=tmp_path,
        env=os.environ | {"WORDS_DATABASE": str(path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert run.stdout is not None
        said = []
        for line in run.stdout:
            said.append(line)
            if "export-0 waits for its sink" in line:
                other.execute("ROLLBACK")
        assert run.wait() == 0, said
        assert "database is locked" in "".join(said)
        assert "its sink answers again" in "".join(said)
        assert other.execute("SELECT word FROM words ORDER BY word").fetchall() == [("a",), ("b",)]
    finally:
        run.kill()
        run.wait()
        assert run.stdout is not None
        run.stdout.close()
        other.close()
