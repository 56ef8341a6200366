"""Tracing in real workers that are killed: outputs are what a replay makes of them, headers too, and spans join."""

import json
from pathlib import Path

import pytest

from grete.execution.records.trace_context import context_of
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.partition_reader import rows_left
from grete.ports import ExternalRecord
from grete.protocol.frames import decode_headers, encode_headers
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.execution.deterministic.test_kills import all_running, poll_until

pytestmark = pytest.mark.chaos

JOB = str(Path(__file__).with_name("traced_shop.py"))
TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
CELL = encode_headers([("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")])
LINES = 60


def test_kills_change_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL in deterministic mode: the digests that cover headers agree, and each span names one that was told."""
    monkeypatch.setenv("SPANS", str(tmp_path / "spans"))
    job, directory = load_job(JOB), JobDirectory(tmp_path / "job")
    settings = Settings(tracing="on", traced_per_million=300_000, checkpoint_interval_ms=300, restart_backoff_ms=20)
    with LocalJob(job, JOB, directory, settings, inputs=OutsideInputs(["lines"])) as run:
        log = directory.open_log()
        for number in range(LINES):
            at, line = TopicPartition("lines", number % 2), f"line{number} to be" + " log" * (number == 0)
            log.produce(0, 0, [ExternalRecord(at, None, line.encode(), number, CELL if number % 3 == 0 else None)])
            log.poll()
            run.poll(10)
            if number in (20, 40):
                poll_until(run, lambda: all_running(run))
                run.supervisor.kill(number // 20 - 1)
        poll_until(run, lambda: run.drained(run.ends()))
        found = replay(job, log, settings)
        assert (found.difference, found.halted) == (None, None)
        assert found.compared >= 3 * LINES
        places = [TopicPartition("out", number) for number in range(2)]
        rows = [row for at in places for row in rows_left(log, at, *log.bounds(at))]
        run.stop()
        log.close()
    contexts = [context_of(decode_headers(row.headers)) for row in rows if row.headers]
    ours = [context.span_id for context in contexts if context is not None and context.trace_id == TRACE]
    assert len(ours) == len(set(ours)) == 3 * LINES // 3 + 1
    others = {context.trace_id for context in contexts if context is not None} - {TRACE}
    assert 0 < len(others) < LINES  # sampled at the source
    told = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    parents = {own: parent for _, trace_id, own, parent in told if trace_id == TRACE}
    for span_id in ours:  # send, process, send, process
        assert parents[parents[parents[parents[span_id]]]] == SPAN
    assert any(name == "checkpoint" for name, *_ in told)
    logged = [
        json.loads(line)
        for number in range(2)
        for line in directory.worker_log(number).read_text().splitlines()
        if '"seen"' in line
    ]
    assert {line["trace_id"] for line in logged} == {f"{TRACE:032x}"}
    assert {int(line["span_id"], 16) for line in logged} <= parents.keys()
