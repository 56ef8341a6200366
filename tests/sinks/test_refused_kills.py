"""Workers that die by SIGKILL while a sink refuses outputs: each output is in the sink or a letter, once (S2a)."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.partition_reader import rows_left
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.sinks.test_http_kills import TAKEN, serving
from tests.sinks.test_refused import lines_in, table_at
from tests.worker.workers import LIMIT_S

RECORDS = 200
BAD = [number for number in range(RECORDS) if number % 7 in (2, 3)]
GOOD = [number for number in range(RECORDS) if number not in BAD]
STEP = 25  # outputs that arrive somewhere between two kills
SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20, batch_bytes_max=256)
LINES, LETTERS = TopicPartition("lines", 0), TopicPartition("letters", 0)
JOB = """
from grete import DeadLetter, Http, Input, Job, Output, Record, Table, Task, Topic, json, utf8

class Send(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output({target}, errors=DeadLetter(Topic("letters", key=utf8, value=utf8)))

    def process(self, record: Record[str, str]) -> None:
        self.out.send(None, {{"line": record.value}})

job = Job("send", stages=[Send])
"""


Arrived = Callable[[], int]


def line(number: int) -> str:
    """Return a line; bad ones are refused."""
    return f"bad {number}" if number in BAD else f"{number}"


def letters(local: LocalJob) -> list[str]:
    """Return the lines of the letters that are committed."""
    rows = rows_left(local.log, LETTERS, *local.log.bounds(LETTERS))
    return [json.loads(row.value or b"")["line"] for row in rows]


def survive(folder: Path, target: str, arrived: Arrived, stopped: Callable[[], bool]) -> tuple[int, list[str]]:
    """Run a job to its end, and kill its worker at each stop and between; return the kills and the letters.

    ``arrived``: how many outputs the sink has.
    """
    file = folder / "send.py"
    file.write_text(JOB.format(target=target))
    inputs = OutsideInputs(["lines"])
    with LocalJob(load_job(str(file)), str(file), JobDirectory(folder / "place"), SETTINGS, inputs=inputs) as local:
        local.log.produce(0, 0, [ExternalRecord(LINES, b"k", line(n).encode(), n) for n in range(RECORDS)])
        while not local.log.poll():
            local.log.wait(100)
        kills, next_kill, deadline = 0, STEP, time.monotonic() + LIMIT_S
        while not local.drained(local.ends()):
            assert time.monotonic() < deadline, (arrived(), letters(local), local.reports.troubles)
            local.poll(5)
            here = arrived() + len(letters(local))
            if stopped() or here >= next_kill:
                local.supervisor.kill(0)
                kills, next_kill, deadline = kills + 1, here + STEP, time.monotonic() + LIMIT_S
        local.stop()
        return kills, letters(local)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_killed_while_a_service_refuses_each_output_is_booked_or_a_letter(tmp_path: Path) -> None:
    """Some requests are under way at a kill, good ones and refused ones."""
    plan = dict.fromkeys((3, 10, 30, 60), TAKEN)
    with serving(plan) as service:

        def stopped() -> bool:
            found = bool(service.stopped())
            if found:
                service.go_on()  # it answers a worker that is dead by then, or not yet
            return found

        def booked() -> list[str]:
            return [json.loads(body)["line"] for _, body in service.told()["booked"]]

        kills, found = survive(tmp_path, f"Http({service.url!r}, json)", lambda: len(booked()), stopped)
        assert (booked(), found) == ([line(n) for n in GOOD], [line(n) for n in BAD])
    assert kills >= len(plan)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_killed_while_a_table_refuses_each_row_is_there_or_a_letter(tmp_path: Path) -> None:
    """Between the letters of a checkpoint and its rows, too."""
    url = table_at(tmp_path / "lines.db")
    target = f'Table({url!r}, "lines", json, columns=["line"])'
    kills, found = survive(tmp_path, target, lambda: len(lines_in(url)), lambda: False)
    assert (lines_in(url), found) == ([line(n) for n in GOOD], [line(n) for n in BAD])
    assert kills > 0
