"""Alive and ready, or why not."""

import threading

import pytest
from msgspec.structs import replace

from grete.core.supervision.process_end import WorkerEnd
from grete.monitor.health import Pulse, StuckLoop, not_ready
from grete.monitor.job_view import JobView
from grete.protocol.report import Portion
from tests.monitor.views import view
from tests.support.reports import AT_MS, OF_WORKER
from tests.support.reports import task_report as status

READY = {"add-up-0": status()}


@pytest.mark.parametrize(
    ("shown", "reasons"),
    [
        (view(READY), []),
        (view({"add-up-0": status(checkpoint_id=-1)}), []),  # it has just begun
        (None, ["the job is starting"]),
        (view(READY, measures=replace(OF_WORKER, log_trouble="no broker")), ["the log does not answer: no broker"]),
        (replace(view(READY), log_trouble="timed out"), ["the log does not answer: timed out"]),
        (view({}), ["worker 0: it is starting"]),
        (view({}, running=False), ["worker 0: its process has ended and will be started again"]),
        (
            view({}, running=False, last_end=WorkerEnd(reason="task error", text="offset 7: KeyError", at_ms=AT_MS)),
            ["worker 0: its process has ended (task error: offset 7: KeyError)"],
        ),
        (
            view({}, running=False, halted=True, last_end=WorkerEnd(reason="halted", text="it is lost", at_ms=AT_MS)),
            ["worker 0: it has halted: it is lost"],
        ),
        (view({}, running=False, fenced=True), ["worker 0: another process has its tasks"]),
        (
            view({"add-up-0": status(status="starting", restore=Portion(1_000, 9_500))}),
            ["add-up-0: starting, 8,500 messages of its changelog left"],
        ),
        (view({"add-up-0": status(status="announcing")}), ["add-up-0: announcing"]),
        (view({"add-up-0": status(checkpoint_id=AT_MS - 11_000)}), ["add-up-0: no checkpoint for 11 s"]),
        (
            view({"add-up-0": status(checkpoint_id=AT_MS - 99_000, waits="for 98 s for x", sink_trouble="it is full")}),
            ["add-up-0: no checkpoint for 99 s, waits for 98 s for x, sink: it is full"],
        ),
    ],
)
def test_a_job_is_ready_or_says_why_not(shown: JobView | None, reasons: list[str]) -> None:
    """Each state that keeps a job from being ready has its words."""
    assert not_ready(shown) == reasons


def test_a_loop_that_turns_is_alive() -> None:
    """Within the bound nothing is said."""
    pulse = Pulse(live_s=3_600)
    pulse.turned()
    assert pulse.stuck() is None


def test_a_loop_that_is_stuck_shows_where() -> None:
    """The stack is that of the thread that made the pulse, whichever thread asks."""
    pulse, told = Pulse(live_s=0), list[StuckLoop | None]()

    def ask() -> None:
        told.append(pulse.stuck())

    def waits_for_another_system() -> None:
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join()

    waits_for_another_system()
    (stuck,) = told
    assert stuck is not None
    assert stuck.since_s >= 0
    assert "waits_for_another_system" in stuck.stack
