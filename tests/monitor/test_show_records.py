"""The setting show_records: no key and no value of a record comes out where it says so."""

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from grete import TumblingWindow, Window, utf8
from grete.core.deterministic.decoded_frame import DecodedFrame, difference
from grete.core.graph.partitioners import KeyAt, Partitioner
from grete.execution.records.key_samples import LEAST, KeySamples
from grete.execution.task_code.failures import timer_name
from grete.job.key_advice import misplaced
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.logs.kafka.client.refusals import told as told_of_refused
from grete.logs.open_transactions import told as told_of_open
from grete.open_transaction import OpenTransaction
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.quoting import ShowRecords
from tests.monitor.test_server import get, url_in
from tests.support.shown import showing
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S

JOB = "tests/monitor/secret_job.py"
KEY, VALUE = "key-of-ann-4711", "value-of-ann-0815"
STATE = "/page/state.json?store=values"
STAGES = "letter", "drop", "decode", "keep", "halt"
ANSWERS = (
    "/page/live.json",
    "/page/graph.json",
    "/page/topic.json?topic=lines",
    f"/page/topic.json?topic=lines&key={KEY[:3]}",
    "/page/topic.json?topic=refused",
    "/page/letters.json?topic=refused",
    "/page/letters.json?topic=unread",
    "/page/letters.json?topic=refused&error=KeyError",
    STATE,
    "/page/state.json?store=values&prefix=k",
    "/state/values",
    "/state/values?prefix=k",
    *(f"/page/changelog.json?stage={stage}" for stage in STAGES),
    *(f"/page/history.json?stage={stage}" for stage in STAGES),
    "/status.json",
    "/metrics",
    "/readyz",
)


@contextmanager
def halted(directory: Path, show: ShowRecords, mode: str) -> Iterator[tuple[str, Path]]:
    """Run the job, let it fail in all other ways, then halt; yield the address of its page, and the screen."""
    screen = directory.parent / "screen.txt"
    settings = [f"show_records={show}", "restarts_max=1", "restart_backoff_ms=1"]
    command = [sys.executable, "-m", "grete.cli", "up", JOB, f"--directory={directory}", "--http=0"]
    command += [f"--set={each}" for each in settings]
    with closing(EmbeddedLog(directory / "log.db")) as log, screen.open("wb") as file:
        create_topics(load_job(JOB), log)
        say(log, "lines", 1_000)
        say(log, "numbers", 1_000)
        say(log, "lines", 9_000)
        process = subprocess.Popen(
            command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, env={**os.environ, "SECRET_JOB_MODE": mode}
        )
        try:
            until(lambda: url_in(screen) is not None or process.poll() is not None, saw=screen.read_text)
            url = url_in(screen)
            assert url is not None
            until(lambda: all(b'"offset"' in get(url, path)[1] for path in ANSWERS if "letters" in path))
            until(lambda: b'"key"' in get(url, STATE)[1] or show == "none")
            until(lambda: "the last one: " in screen.read_text(), saw=screen.read_text)
            say(log, "last", 1_000)
            until(lambda: "still served, until Ctrl-C" in screen.read_text(), saw=screen.read_text)
            yield url, screen
            process.send_signal(signal.SIGINT)
            process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()


def say(log: EmbeddedLog, topic: str, timestamp_ms: int) -> None:
    """Append the record to a topic."""
    record = ExternalRecord(TopicPartition(topic, 0), KEY.encode(), VALUE.encode(), timestamp_ms, None)
    log.open_metadata("secrets").produce_with_meta([record], {})


def packed(directory: Path, show: ShowRecords) -> bytes:
    """Return all parts of the file of the incident, unpacked."""
    path = directory.parent / "incident.zip"
    command = [sys.executable, "-m", "grete.cli", "incident", JOB, f"--directory={directory}", "--no-code"]
    command += ["--task=keep-0", f"--output={path}", f"--set=show_records={show}"]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(path) as file:
        return done.stdout + done.stderr + b"".join(file.read(name) for name in file.namelist())


@pytest.mark.test  # starts a job of five stages, which fails in each way
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("show", get_args(ShowRecords))
def test_no_hidden_part_of_a_record_comes_out_of_a_job_that_fails(tmp_path: Path, show: ShowRecords, mode: str) -> None:
    """In logs, on the screen, in an answer of the page, in an incident; where all is shown each of them has it."""
    directory = tmp_path / "job"
    directory.mkdir()
    with halted(directory, show, mode) as (url, screen):
        came = {path: get(url, path)[1] for path in ANSWERS}
    came["screen"] = screen.read_bytes()
    came["log"] = b"".join(path.read_bytes() for path in (directory / "logs").iterdir())
    came["incident"] = packed(directory, show)
    with_key, with_value = (
        {name for name, text in came.items() if found.encode() in text or found.encode().hex().encode() in text}
        for found in (KEY, VALUE)
    )
    everywhere = {"screen", "log", "incident", *(path for path in ANSWERS if "/letters" in path)}
    everywhere |= {"/page/live.json", "/page/topic.json?topic=lines", STATE}
    if show == "all":
        assert everywhere <= with_value
        assert everywhere <= with_key
    else:
        assert not with_value
        assert STATE in with_key if show == "keys" else not with_key
        assert b"ValueError: (hidden)" in came["log"]
    assert b"secret_job.py" in came["log"]  # the line of code is told in any case
    assert b"SerdeError" in came["screen"]


def quotes() -> dict[str, str]:
    """Return by a name the texts that quote a key, as far as no job of this test makes them."""
    at = TopicPartition("lines", 0)
    record = ExternalRecord(at, KEY.encode(), VALUE.encode(), 1_000, None)
    samples = KeySamples()
    for _ in range(LEAST):
        samples.take("keep-0", [KEY.encode()], 0)
    window: TumblingWindow[str, str] = TumblingWindow("minute", 60_000, utf8, utf8)
    batch = RecordBatch([KEY.encode()], [VALUE.encode()], [1], None, ([1_000], [0]))
    frame = DecodedFrame(1, 0, 1, batch, [(1_000, 0)], 0)
    other = replace(frame, batch=batch._replace(keys=[f"not {KEY}".encode()]))
    return {
        "timer": timer_name("event", KEY),
        "window": window.which(Window("minute", 0, 60_000, KEY, VALUE)),
        "hot key": str(samples.hottest()),
        "misplaced": misplaced(at, 2, Partitioner.MURMUR2, KeyAt(KEY.encode(), 1), before=None),
        "refused": told_of_refused(record),
        "open transaction": told_of_open(at, OpenTransaction(0, 1, 1, KEY.encode())),
        "frame that differs": difference(frame, 1, 0, other, 1) or "",
    }


def test_texts_that_quote_a_key_leave_it_out() -> None:
    """Each has it else."""
    for show in get_args(ShowRecords):
        with showing(show):
            told = quotes()
            assert {name for name, text in told.items() if KEY in text} == (set() if show == "none" else {*told})
            assert show == "all" or VALUE not in str(told)
