"""The loop of a run that is fed by a pipe."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete.cli import feeding
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tasks.word_count import job
from tests.support.waiting import until


def test_a_pipe_that_is_quiet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person types, or the writer of a pipe thinks: until a line comes the loop is held, and burns no core."""
    monkeypatch.setattr(feeding, "LINE_MS", 60_000)
    main, typed = threading.get_ident(), list[bytes]()
    read, write = os.pipe()

    def types_once_the_loop_waits() -> None:
        until(lambda: sys._current_frames()[main].f_code is feeding.Feeding.wait.__code__)
        typed.append(b"to be\n")
        os.write(write, typed[0])

    def lines() -> Iterator[int]:
        yield len(os.read(read, 100))

    with (
        os.fdopen(read),
        os.fdopen(write),
        closing(LocalJob(job, "tasks.word_count", JobDirectory(tmp_path), Settings())) as local,
    ):
        fed = feeding.Feeding(local, None, {lines(): read}, follow=False)
        typing = threading.Thread(target=types_once_the_loop_waits)
        typing.start()
        fed.wait()
        assert typed
        typing.join()
        idle = []
        for _ in range(2):
            fed.step()
            idle.append(fed.idle)
        assert idle == [False, True]
        fed.wait()  # for no line more
