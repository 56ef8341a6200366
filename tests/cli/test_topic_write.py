"""`grete topic write`: records for a job, from the command line, whether it runs or not."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from grete.cli import command_line
from tests.cli.test_run import start
from tests.support.waiting import bounded, until

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
orders = Topic("orders", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=int64)


class Total(Task):
    orders = Input(orders)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        total = self.sums.get(record.key, 0) + record.value
        self.sums.put(record.key, total)
        self.out.send(record.key, total, headers=record.headers[:1])


job = Job("orders", stages=[Total], partitions=2)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the job, in which commands run."""
    (tmp_path / "orders.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command in this process; return what it printed, or its error."""
    monkeypatch.setattr(sys, "argv", ["grete", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line()
    printed = capsys.readouterr()
    assert int(ended.value.code or 0) == code, printed
    return printed.out if not code else printed.err


def test_records_come_back_as_they_were_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of `topic read --json` can be written again: key, value, time and headers, with new numbers."""
    first = {
        "key": "a",
        "value": 3,
        "timestamp_ms": 1_700_000_000_000,
        "headers": [["trace", "x"], ["id", {"hex": "ff00"}]],
    }
    (folder / "first.jsonl").write_text(f'{json.dumps(first)}\n{{"key": "b", "value": null}}\n')
    write = ("topic", "write", "orders.py", "orders")
    assert run(monkeypatch, capsys, *write, "first.jsonl", "--json-lines") == "2 records written to orders\n"
    rows = run(monkeypatch, capsys, "topic", "read", "orders.py", "orders", "--json")
    (folder / "again.jsonl").write_text(rows)
    assert run(monkeypatch, capsys, *write, "again.jsonl", "--json-lines") == "2 records written to orders\n"
    found = [
        json.loads(line)
        for line in run(monkeypatch, capsys, "topic", "read", "orders.py", "orders", "--json").splitlines()
    ]
    kept = [(row["key"], row["value"], row["timestamp_ms"], *map(str, row["headers"][:-2])) for row in found]
    assert Counter(kept)["a", 3, 1_700_000_000_000, "['trace', 'x']", "['id', {'hex': 'ff00'}]"] == 2
    assert [value for key, value, *_ in kept if key == "b"] == [None, None]
    numbers = {tuple(map(tuple, row["headers"][-2:])) for row in found}
    assert len(numbers) == 4


def test_a_running_job_gets_them(folder: Path) -> None:
    """Lines with keys come in by standard input; the job that runs adds them up."""
    (folder / "given.tsv").write_text("")
    process = start("run", "orders.py", "--follow", cwd=folder)
    try:
        for _ in range(2):
            write = ("topic", "write", "orders.py", "orders", "--json-lines")
            writer = start(*write, cwd=folder, stdin=subprocess.PIPE)
            with bounded("the records to be written"):
                out, err = writer.communicate('{"key": "a", "value": 2}\n{"key": "a", "value": 5}\n')
            assert (writer.returncode, out, err) == (0, "2 records written to orders\n", "")

        def total() -> str:
            read = start("state", "get", "orders.py", "sums", "a", cwd=folder)
            return read.communicate()[0]

        until(lambda: total() == "14\n", "the sum of all four")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["totals"], "job 'orders' does not read topic 'totals' from outside: it reads orders"),
        (["orders", "missing"], "topic write orders missing: No such file"),
        (["orders", "lines.txt"], "line 1 is not a record of topic 'orders'"),
        (["orders", "lines.txt", "--keys", "--json-lines"], "leave --keys out"),
        (
            ["orders", "odd.jsonl", "--json-lines"],
            "line 1 is not a record of topic 'orders': serde utf8 cannot encode dict",
        ),
        (["orders", "lines.txt", "--json-lines"], "line 1 is not a record of topic 'orders': JSON is malformed"),
    ],
)
def test_mistakes_are_named(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    """Exit code 2, a line, and nothing is written."""
    (folder / "lines.txt").write_text("no number\n")
    (folder / "odd.jsonl").write_text('{"key": {"hex": 5, "not": "utf8"}, "value": 1}\n')
    assert words in run(monkeypatch, capsys, "topic", "write", "orders.py", *arguments, code=2)
