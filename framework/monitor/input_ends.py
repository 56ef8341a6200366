"""Asks the log now and then where the inputs of tasks end, in a thread: no loop waits for the answer."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Self

from grete.api.jobs.job import Job
from grete.errors import FrameworkError
from grete.ports import Log
from grete.state.read.checkpoints.commits import all_wirings

EVERY_S = 5.0  # between two questions
END_S_MAX = 5.0  # for the last answer


class InputEnds:
    """Within a ``with`` block, ``ends`` is what the log last said: input partition → offset."""

    def __init__(self, job: Job, open_log: Callable[[], Log]) -> None:
        """``open_log`` is called in the thread, which closes what it returns."""
        self.ends: Mapping[str, int] = {}
        wirings = list(all_wirings(job))
        streams = (partition for wiring in wirings for _, partition in wiring.channels)
        outside = (partition for wiring in wirings for partition in wiring.external)
        self._inputs = tuple(dict.fromkeys((*outside, *streams)))
        self._open_log = open_log
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="grete-input-ends", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(END_S_MAX)

    def _watch(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(FrameworkError), contextlib.closing(self._open_log()) as log:
                self._ask(log)
            self._over.wait(EVERY_S)

    def _ask(self, log: Log) -> None:
        """Ask until the end, or until the log does not answer: then it is opened again."""
        while not self._over.is_set():
            self.ends = {str(partition): end for partition, (_, end) in log.all_bounds(self._inputs).items()}
            self._over.wait(EVERY_S)
