"""`grete sql`: stores, windows and letters as tables, as of a checkpoint; and what is wrong with a query."""

import json
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

from grete.cli.commands import sql as command
from grete.cli.job_target import NamedJob
from grete.errors import ConfigError
from grete.logs.address import LogAddress
from grete.settings import Settings
from tests.worker.workers import LIMIT_S

JOB = """
from grete import DeadLetter, Input, Job, Key, Record, Store, Task, Topic, TumblingWindow, Window, int64, json, utf8

orders = Topic("orders", key=utf8, value=utf8)
refused = Topic("refused", key=utf8, value=utf8)


class Keep(Task):
    orders = Input(orders, errors=DeadLetter(refused))
    counts = Store("counts", key=utf8, value=int64)
    pairs = Store("pairs", key=Key(utf8, int64, names=("word", "length")), value=json)
    minutes = TumblingWindow("minutes", 60_000, utf8, int64, grace_ms=10**13)

    def process(self, record: Record[str, str]) -> None:
        word = record.value
        if word == "bad":
            raise ValueError("a bad word")
        self.counts.put(word, self.counts.get(word, 0) + 1)
        self.pairs.put((word, len(word)), {"word": word})
        self.minutes.update(word, 61_000, lambda count: (count or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        pass


class Again(Task):
    orders = Input(orders)
    pairs = Store("pairs", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        self.pairs.put(record.value, "again")


job = Job("orders", stages=[Keep, Again], partitions=2)
"""


def grete(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "grete.cli", *arguments]
    return subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has run twice; "first" in it has the checkpoint at the end of the first run."""
    place = tmp_path_factory.mktemp("sql")
    (place / "orders.py").write_text(JOB)
    for number, words in enumerate(("to be bad", "to not")):
        lines = "".join(f"{word}\t{word}\n" for word in words.split())
        done = grete("run", "orders.py", "--input=orders=-", "--keys", cwd=place, stdin=lines)
        assert done.returncode == 0, done.stderr
        if not number:
            told = [
                json.loads(line) for line in grete("checkpoints", "orders.py", "--json", cwd=place).stdout.splitlines()
            ]
            (place / "first").write_text(str(max(row["checkpoint_id"] for row in told)))
    return place


def rows(place: Path, query: str, *options: str) -> list[list[str]]:
    """Return the rows of a query, with its columns."""
    done = grete("sql", "orders.py", query, *options, cwd=place)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


@pytest.mark.test  # runs a job, and commands
def test_stores_windows_and_letters_are_tables(place: Path) -> None:
    """Tables have all partitions; a key of parts is a struct; a name that two stages have is told by the stage."""
    assert rows(place, "SELECT key, value FROM counts ORDER BY key") == [
        ["key", "value"], ["be", "1"], ["not", "1"], ["to", "2"],
    ]  # fmt: skip
    assert rows(place, "SELECT key.word, key.length, value->>'word' FROM \"keep.pairs\" ORDER BY 1")[1:] == [
        ["be", "2", "be"], ["not", "3", "not"], ["to", "2", "to"],
    ]  # fmt: skip
    assert rows(place, 'SELECT count(*) AS n FROM "again.pairs" JOIN counts USING (key)') == [["n"], ["3"]]
    assert rows(place, "SELECT key, start, \"end\", value FROM minutes WHERE key = 'to'")[1:] == [
        ["to", "60000", "120000", "2"]
    ]
    (letter,) = rows(place, "SELECT topic, origin, error, value FROM letters")[1:]
    assert letter == ["refused", "orders", "ValueError: a bad word", "bad"]
    (found,) = grete(
        "sql", "orders.py", "SELECT key, value FROM counts WHERE key = 'to'", "--json", cwd=place
    ).stdout.splitlines()
    assert json.loads(found) == {"key": "to", "value": 2}


@pytest.mark.test  # runs a job, and commands
def test_a_query_is_of_one_checkpoint(place: Path) -> None:
    """The earlier one that is named is read; one that was never committed is refused."""
    at = f"--checkpoint={(place / 'first').read_text()}"
    assert rows(place, "SELECT key, value FROM counts ORDER BY key", at)[1:] == [["be", "1"], ["to", "1"]]
    done = grete("sql", "orders.py", "SELECT 1", "--checkpoint=17", cwd=place)
    assert done.returncode == 2
    assert "17" in done.stderr


@pytest.mark.test  # runs a job, and commands
def test_a_wrong_query_is_told_with_the_tables(place: Path) -> None:
    """Wrong words, a table that is not there, and a column."""
    for query, said in (
        ("SELEKT 1", "syntax error"),
        ("SELECT * FROM sums", "sums"),
        ("SELECT colour FROM counts", "colour"),
    ):
        done = grete("sql", "orders.py", query, cwd=place)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert '"keep.pairs"' in done.stderr.replace("\n", "")


def test_without_the_extra_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read before that."""

    def find_spec(name: str) -> ModuleType | None:
        return None if name == "duckdb" else util.find_spec(name)  # type: ignore[return-value]  # it is only compared

    monkeypatch.setattr(command, "find_spec", find_spec)
    named = NamedJob("orders.py", tmp_path, LogAddress(), Settings)
    with pytest.raises(ConfigError, match=r"duckdb: not installed; queries need the extra: pip install 'grete\[sql\]'"):
        command.sql(named, "SELECT 1")
