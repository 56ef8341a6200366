"""Fills a store from a snapshot's files in a thread, while the other tasks of the process continue."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from grete.errors import FrameworkError, TransientError
from grete.execution.prebuilt.snapshot_install import SnapshotTaker
from grete.stores.rocksdb.store import RocksStore


class StoreFilling:
    """The filling of one task's store. Only ``over``, once a round of the loop, touches log and store."""

    def __init__(
        self, taker: SnapshotTaker, silent_ms: float, mono_ms: Callable[[], float], fetching: set[Path]
    ) -> None:
        """``silent_ms``: for how long nothing may come; then the changelog is read.

        ``fetching``: the stores of this process for which a thread is under way, perhaps one that was given up.
        """
        self._taker, self._silent_ms, self._mono_ms = taker, silent_ms, mono_ms
        self._fetching = fetching
        self._step: Future[Any] | None = None  # under way
        self._moves, self._moved_ms = 0, 0.0

    def begin(self, url: str, store: RocksStore, directory: Path) -> None:
        """Begin; often there is nothing to do. Raises TransientError: the log does not answer."""
        self._directory = directory
        url = "" if directory in self._fetching else url  # that thread writes to the same place
        self._steps = self._taker.steps(url, store, directory)
        self._go_on(partial(next, self._steps))

    def over(self) -> bool:
        """Do what can be done now; return whether the store is as it stays. Raises TransientError as ``begin``."""
        while (step := self._step) is not None:
            if not step.done():
                if not self._is_silent():
                    return False
                self._taker.given_up = True  # the thread ends with the next bytes, and has nothing that counts
                silent = TransientError(f"nothing came for {self._silent_ms / 1000:.0f} s")
                self._go_on(partial(self._steps.throw, silent))
                continue
            error = step.exception()
            if error is not None and not isinstance(error, FrameworkError):
                raise error
            if error is None:
                self._go_on(partial(self._steps.send, step.result()))
            else:
                self._go_on(partial(self._steps.throw, error))
        return True

    def stop(self) -> None:
        """Give up: a step that is under way ends soon, and takes no part in anything."""
        self._taker.given_up, self._step = True, None
        self._steps.close()

    def _go_on(self, go: Callable[[], Callable[[], Any]]) -> None:
        self._step = None
        try:
            work = go()
        except StopIteration:
            return
        self._step, self._moved_ms = Future(), self._mono_ms()
        self._fetching.add(self._directory)
        threading.Thread(target=self._run, args=(self._step, work), name="snapshot", daemon=True).start()

    def _is_silent(self) -> bool:
        if self._moves != self._taker.moves:
            self._moves, self._moved_ms = self._taker.moves, self._mono_ms()
        return self._mono_ms() - self._moved_ms > self._silent_ms

    def _run(self, step: "Future[Any]", work: Callable[[], Any]) -> None:
        result, raised = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  # the loop raises it
            raised = error
        self._fetching.discard(self._directory)
        if raised is None:
            step.set_result(result)
        else:
            step.set_exception(raised)
