"""The signals that ask a process to stop."""

import signal
from collections.abc import Iterator

import pytest

from grete.worker.pipes.signal_pipe import STOPS, SignalPipe, on_stop
from tests.worker.workers import handlers_kept


@pytest.fixture(autouse=True)
def _handlers_of_before() -> Iterator[None]:
    """Give back the handlers of the process."""
    with handlers_kept():
        yield


@pytest.mark.parametrize("number", STOPS)
def test_each_is_told(number: signal.Signals) -> None:
    """To the handler, and through the pipe."""
    told: list[int] = []
    signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup, which has SIGHUP ignored
    on_stop(lambda signum, _frame: told.append(signum))
    with SignalPipe() as pipe:
        signal.raise_signal(number)
        assert pipe.asked(0.0)
    assert told == [number]


def test_a_closed_terminal_is_ignored_under_nohup() -> None:
    """The one who started the process has said so; the other signals stop it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    on_stop(signal.SIG_DFL)
    assert [signal.getsignal(number) for number in STOPS] == [signal.SIG_DFL, signal.SIG_DFL, signal.SIG_IGN]
