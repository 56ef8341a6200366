"""`grete dlq redrive` of outputs that a sink has refused: each goes back to it once, wherever the command dies."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from tests.cli.test_dlq import Shop
from tests.cli.test_run import ROOT, start
from tests.sinks.service import serving
from tests.sinks.test_sqlite import database
from tests.support import forking
from tests.worker.workers import LIMIT_S

JOB = """
from grete import *
lines = Topic("lines", key=utf8, value=utf8)
refused = Topic("refused", key=utf8, value=utf8)

class Send(Task):
    lines = Input(lines, errors=DeadLetter(refused))
    posts = Output(Http("URL", utf8), errors=DeadLetter(refused))
    rows = Output(Table("lines.db", "lines", json, columns=["line"]), errors=DeadLetter(refused))

    def process(self, record):
        if record.value == "broken":
            raise ValueError(record.value)
        self.posts.send(None, record.value)
        self.rows.send(None, {"line": record.value})

job = Job("send", stages=[Send])
"""
STRICT, LAX = "CREATE TABLE lines (line TEXT CHECK (line NOT LIKE 'bad%'))", "CREATE TABLE lines (line TEXT)"
LINES = ["a", "bad b", "broken", "c", "bad d", "e"]
BAD = [f"bad {number}" for number in range(6)]
WORDS = "OutputRefused", "CHECK"  # of the errors of all outputs, and of those to the table

# Dies by SIGKILL before or after the N-th step of the way back: metadata that is written, or a sink's transaction.
KILLED = """
import os, signal, sys
from grete.cli import command_line
from grete.logs.embedded import EmbeddedLog
from grete.sinks.http import HttpSink
from grete.sinks.sql import SqlSink
when, steps = int(sys.argv.pop(1)), [0]
def around(owner, name):
    original = getattr(owner, name)
    def wrapped(*arguments, **options):
        for _ in range(2):
            steps[0] += 1
            if steps[0] == when:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options) if _ == 0 else result
        return result
    setattr(owner, name, wrapped)
around(EmbeddedLog, "produce_with_meta")
around(HttpSink, "send_again")
around(SqlSink, "commit")
sys.exit(command_line())
"""


def fed(folder: Path, url: str, lines: Sequence[str] = LINES) -> Shop:
    """Return a job that has sent its lines, and has letters of bad ones."""
    database(folder / "lines.db", STRICT)
    shop = Shop(folder, code=JOB.replace("URL", url))
    shop("run", "shop.py", "--input=lines=-", "--keys", stdin="".join(f"k\t{line}\n" for line in lines))
    return shop


def rows(folder: Path) -> list[str]:
    """Return the rows of the table, in the order of their insertion."""
    return [line for (line,) in database(folder / "lines.db", "SELECT line FROM lines ORDER BY rowid")]


def mend(folder: Path) -> None:
    """Let the table take all lines."""
    copy = "INSERT INTO lines SELECT line FROM strict ORDER BY rowid"
    database(folder / "lines.db", "ALTER TABLE lines RENAME TO strict", LAX, copy, "DROP TABLE strict")


def test_outputs_go_back_to_their_sinks_once(tmp_path: Path) -> None:
    """Those that are refused again stay letters. A record goes back to its topic, and through the job once more."""
    with serving() as service:
        service.refuses = lambda body: 422 if body.startswith(b"bad") else None
        shop = fed(tmp_path, service.url)
        shown = [json.loads(line) for line in shop.dlq("show", "--json", "--where=error=422").splitlines()]
        assert [(each["key"], each["value"], each["output"]) for each in shown] == [
            ("null", "bad b", "posts"),
            ("null", "bad d", "posts"),
        ]
        assert (service.bodies, rows(tmp_path)) == ([b"a", b"c", b"e"], ["a", "c", "e"])
        said = "output posts: refused again: 2: repair the sink, then send them once more"
        assert shop.dlq("redrive", "--where=error=422") == f"{said}\n"
        service.refuses = lambda _: None
        mend(tmp_path)
        assert shop.dlq("redrive").splitlines() == [
            "lines: sent again: 1",
            "output posts: sent again: 2",
            "output rows: sent again: 2",
        ]
        assert service.bodies == [b"a", b"c", b"e", b"bad b", b"bad d"]
        assert rows(tmp_path) == ["a", "c", "e", "bad b", "bad d"]
        refused = [headers["Idempotency-Key"] for _, headers in service.requests]
        assert refused[-2:] == [each["idempotency_key"] for each in shown]
        assert shop.dlq("redrive") == "no letter to send: none matches, or all were sent before\n"
        (counted,) = [
            row
            for row in map(json.loads, shop.dlq("list", "--json").splitlines())
            if (row["topic"], row["error"]) == ("output rows", "OutputRefused")
        ]
        assert (counted["letters"], counted["sent_again"]) == (2, 2)
        shop("run", "shop.py")
        assert service.bodies == [b"a", b"c", b"e", b"bad b", b"bad d"], "the broken record is broken still"


@pytest.mark.chaos
def test_killed_at_any_step_each_output_is_back_once(tmp_path: Path) -> None:
    """The next run takes up first what was on its way, whatever it is asked for."""
    with serving() as service:
        service.refuses = lambda body: 422 if body.startswith(b"bad") else None
        shop = fed(tmp_path, service.url, ["a", *BAD, "c", "e"])
        service.refuses = lambda _: None
        mend(tmp_path)
        killed, code = 0, -signal.SIGKILL
        while code != 0:
            step, where = 1 + killed % 9, f"--where=error={WORDS[killed % 2]}"  # each letter is six of them
            command = [*forking.TEXT, KILLED, str(step), "dlq", "redrive", "shop.py", where]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=LIMIT_S, check=False)
            code = done.returncode
            assert code in (0, -signal.SIGKILL)
            killed += code != 0
        assert killed >= 6
        shop.dlq("redrive")
        assert service.bodies == [b"a", b"c", b"e", *(bad.encode() for bad in BAD)]
        assert rows(tmp_path) == ["a", "c", "e", *BAD]
        assert shop.dlq("redrive") == "no letter to send: none matches, or all were sent before\n"


@pytest.mark.chaos
def test_a_letter_on_its_way_needs_its_output_or_its_time_is_over(tmp_path: Path) -> None:
    """Code without the output is refused by a sentence; a letter that is not retained holds up no other one."""
    with serving() as service:
        service.refuses = lambda body: 422 if body.startswith(b"bad") else None
        shop = fed(tmp_path, service.url)
        command = [*forking.TEXT, KILLED, "3", "dlq", "redrive", "shop.py", f"--where=error={WORDS[0]}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, timeout=LIMIT_S, check=False)
        assert done.returncode == -signal.SIGKILL
        code = (tmp_path / "shop.py").read_text()
        (tmp_path / "shop.py").write_text(code.replace("posts", "others"))
        process = start("dlq", "redrive", "shop.py", cwd=tmp_path, stdin=subprocess.PIPE)
        text = process.communicate("", timeout=LIMIT_S)[1]
        assert process.returncode == 2, text
        found = re.search(r"gave letter (\d+) to output posts of stage 'send', and the code has no such output", text)
        assert found is not None, text
        (tmp_path / "shop.py").write_text(code)
        with closing(EmbeddedLog(next(tmp_path.glob("**/log.db")))) as log:
            log.trim(TopicPartition("refused", 0), int(found[1]) + 1)
        service.refuses = lambda _: None
        mend(tmp_path)
        shop.dlq("redrive")
        assert service.bodies == [b"a", b"c", b"e", b"bad d"]
        assert rows(tmp_path)[-1] == "bad d"
