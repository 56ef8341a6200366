"""The standbys of a machine as its supervisor sees them: when one is asked to end, and when it waits."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from grete.job.directory import JobDirectory
from grete.protocol.report import EndReport, StandbyReport, StandbyState, StandbyTaskReport
from grete.settings import Settings
from grete.worker.process_main import spec_in
from grete.worker.process_pool import ProcessPool, Started
from grete.worker.standby_processes import STILL_S, StandbyProcess, StandbyProcesses
from grete.worker.status_pipe import StatusPipe
from tests.support.waiting import bounded

TOLD = """
import os, signal, time
signal.signal(signal.SIGUSR2, lambda *_: os._exit(7))
print("here", flush=True)
time.sleep(1_000)
"""

RESTORING = StandbyTaskReport(
    stage="count",
    partition=0,
    status=StandbyState.RESTORING,
    checkpoint_id=-1,
    position=-1,
    read=10,
    end=20,
    behind=-1,
    trouble="",
)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[tuple[StandbyProcesses, StandbyProcess]]:
    """A standby of partition 0 that has begun to restore."""
    job_directory = JobDirectory(tmp_path / "job")
    standbys = StandbyProcesses(spec_in(job_directory, "x", Settings()), job_directory, ProcessPool(), print)
    process = subprocess.Popen([sys.executable, "-c", TOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    each = StandbyProcess(0, Started(process, reader, writer))
    each.tasks = {"count-0": RESTORING}
    each.read, each.read_s = 10, time.monotonic()
    standbys.wanted, standbys.processes = frozenset({0}), {0: each}
    yield standbys, each
    process.kill()
    process.wait()
    os.close(writer)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_one_that_restores_is_promoted_when_it_has(one: tuple[StandbyProcesses, StandbyProcess]) -> None:
    """A worker in its place would restore all again: until it has the state, its partition waits for it."""
    standbys, each = one
    process = each.process
    assert process is not None
    standbys.want((), promoted=[0])
    standbys.poll()
    assert (set(standbys.held), standbys.ending, each.stop_by) == ({0}, False, None)
    each.tasks["count-0"] = replace(RESTORING, behind=3)
    standbys.poll()
    with bounded("the standby's end"):
        assert process.wait() == -signal.SIGTERM
    standbys.poll()
    assert standbys.held == frozenset()


def test_one_that_an_error_ends_has_its_stores_until_it_is_gone(
    one: tuple[StandbyProcesses, StandbyProcess],
) -> None:
    """It was asked to end, and reports an error and no tasks: it still has to close them, and is no worker to come."""
    standbys, each = one
    assert each.started is not None
    standbys.want((), promoted=[0])
    each.stop_by = time.monotonic() + 100
    StatusPipe(each.started.status_fd).end(StandbyReport(tasks=(), end=EndReport(reason="disk", text="full")))
    standbys.poll()
    assert (set(standbys.held), each.end is not None) == ({0}, True)


@pytest.mark.parametrize("why", ["not wanted", "still", "in trouble"])
def test_nothing_waits_for_one_that_does_not_come_on(one: tuple[StandbyProcesses, StandbyProcess], why: str) -> None:
    """One whose partition goes elsewhere ends at once; so does one that reads nothing any more, or says why not."""
    standbys, each = one
    each.read_s -= STILL_S if why == "still" else 0
    each.tasks["count-0"] = replace(RESTORING, trouble="damaged" if why == "in trouble" else "")
    standbys.want((), promoted=[] if why == "not wanted" else [0])
    assert standbys.ending


def test_one_whose_worker_is_to_come_is_told(one: tuple[StandbyProcesses, StandbyProcess]) -> None:
    """It opens ahead what the worker needs, while another machine still runs the partition."""
    standbys, each = one
    process = each.process
    assert process is not None
    standbys.want([0], coming=[0])
    standbys.poll()
    with bounded("the signal that says so"):
        assert process.wait() == 7
