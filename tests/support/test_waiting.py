"""Waits that end: they say for what, and a crowded or stopped machine gets more seconds."""

import os
import re
import signal
import time

import pytest

from tests.support import waiting
from tests.support.waiting import CROWD_MAX, LOOK_S_MAX, PATIENCE_S, MachineTime, bounded, crowd, until


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.crowd = 1_000.0, 1.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(waiting, "crowd", lambda: self.crowd)

    def step(self) -> None:
        """Half a second passes."""
        self.now_s += 0.5


@pytest.mark.parametrize("sharing", [1.0, 4.0])
def test_a_wait_fails_with_what_it_waited_for(monkeypatch: pytest.MonkeyPatch, sharing: float) -> None:
    """Within 30 s on a quiet machine; with four processes to a core after four times as long."""
    clock = Clock(monkeypatch)
    clock.crowd = sharing
    seconds = round(PATIENCE_S * sharing)
    said = f"waited {seconds} s for a commit, which does not come; last seen: 7 records"
    with pytest.raises(AssertionError, match=f"^{re.escape(said)}$"):
        until(lambda: False, "a commit", step=clock.step, saw=lambda: "7 records")
    assert clock.now_s == 1_000 + seconds


def test_a_condition_without_words_is_told_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of code names what it looks at."""
    clock = Clock(monkeypatch)
    with pytest.raises(AssertionError, match=r"for until\(lambda: clock\.now_s < 0, step=.*, which does not"):
        until(lambda: clock.now_s < 0, step=clock.step)


def test_what_happens_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it is there."""
    clock = Clock(monkeypatch)
    assert until(lambda: clock.now_s - 1_000 if clock.now_s > 1_003 else None, "time", step=clock.step) == 3.5


def test_time_without_a_look_counts_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process was stopped for an hour, and what it waits for with it."""
    clock = Clock(monkeypatch)
    counted = MachineTime()
    clock.now_s += 3_600
    assert counted.look() == LOOK_S_MAX


def test_a_crowd_has_bounds() -> None:
    """A process alone has a core; the longest wait ends before pytest's own limit."""
    assert 1.0 <= crowd() <= CROWD_MAX


def test_a_call_that_does_not_return_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the kernel would let it wait for ever; then pytest's timer goes on."""
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    monkeypatch.setattr(waiting, "LOOK_S_MAX", 0.02)
    before, (left_s, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    reader, writer = os.pipe()
    try:
        with pytest.raises(AssertionError, match="for a byte, which does not come"), bounded("a byte"):
            os.read(reader, 1)
        os.write(writer, b"x")
        with bounded("a byte"):
            assert os.read(reader, 1) == b"x"
    finally:
        os.close(reader)
        os.close(writer)
    assert signal.getsignal(signal.SIGALRM) == before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (left_s > 0)
