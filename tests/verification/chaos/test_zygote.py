"""The process that forks workers for the chaos tests."""

import select
import signal
from pathlib import Path

from tests.support.waiting import until
from tests.verification.chaos.zygote import Zygote


class ReadsLate(Zygote):
    """A parent that learns of a child only when the child has ended and the zygote has reaped it."""

    def _receive(self) -> tuple[dict[str, int], list[int]]:
        select.select([self._socket], [], [], 30.0)
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        until(lambda: not children.read_text())
        return super()._receive()


def test_a_child_that_ended_before_its_parent_learned_of_it_has_a_code(tmp_path: Path) -> None:
    """A worker may die in its first step; a signal to it then reaches no other process."""
    with ReadsLate("tasks.word_count") as zygote, (tmp_path / "log").open("w") as log:
        child = zygote.fork({"no such argument": 1}, log.fileno(), log.fileno())
        child.signal(signal.SIGKILL)
        assert zygote.wait(child) == 1
        child.forget()
    assert "no such argument" in (tmp_path / "log").read_text()
