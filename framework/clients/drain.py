"""Brings what a spool holds into the log, in a thread of its own, for as long as it takes."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from grete.errors import ConfigError, FrameworkError, TransientError
from grete.feeds.spool import Spool, Spooled
from grete.logs.patience import EVERY_S, Patience
from grete.ports import JobLog

AGAIN_S = 1.0  # after an error that passes, as a full disk, until the log is opened again
MISSING_S = 15.0  # until a topic is taken for missing: a broker that has just started may not know it yet
STEP_MS = 100.0  # of waiting for an answer; then a close is looked for

logger = logging.getLogger("grete")

OpenLog = Callable[[Patience], JobLog]


class Drain:
    """Sends the oldest records of a spool, and forgets them when the log has acknowledged them, until it is closed."""

    def __init__(self, spool: Spool, open_log: OpenLog, partitions_of: Callable[[JobLog], int | None]) -> None:
        """Start. ``partitions_of`` tells how many partitions the topic has in a log; None: it is not there."""
        self._spool, self._open_log, self._partitions_of = spool, open_log, partitions_of
        self._patience = Patience(math.inf, math.inf)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._error: FrameworkError | None = None
        self._thread = threading.Thread(target=self._run, name="grete-drain", daemon=True)
        self._thread.start()

    def append(self, records: Sequence[Spooled]) -> bool:
        """Spool records; False if there is no room. Raises what keeps the thread from sending (check)."""
        self.check()
        kept = self._spool.append(records)
        if kept:
            with self._changed:
                self._changed.notify_all()
        return kept

    def wait_for_room(self) -> None:
        """Wait until the log has acknowledged something, or for a second: the disk may have room again. See check."""
        with self._changed:
            self._changed.wait(AGAIN_S)
        self.check()

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until the spool is empty, or the time is over; return whether it is. See check."""
        with self._changed:
            self._changed.wait_for(lambda: not len(self._spool) or self._error is not None, timeout_s)
        self.check()
        return not len(self._spool)

    def check(self) -> None:
        """Raise ConfigError, Halted: a person must look, and nothing is sent until the program starts again."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread. What was not acknowledged stays in the spool."""
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        self._patience.end_within(0)
        self._thread.join()

    def _run(self) -> None:
        said_s = -math.inf
        try:
            while not self._closing.is_set():
                try:
                    with contextlib.closing(self._open_log(self._patience)) as log:
                        self._send_all(log)
                except TransientError as error:  # also LogAway, when it is closed meanwhile
                    if not self._closing.is_set() and time.monotonic() - said_s >= EVERY_S:
                        said_s = time.monotonic()
                        logger.warning("spool waits", extra={"why": str(error)})
                    with self._changed:
                        self._changed.wait_for(self._closing.is_set, AGAIN_S)
        except FrameworkError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # else the program would wait for a thread that has ended
            self._fail(FrameworkError(f"the thread that writes to the log has failed: {error!r}"))

    def _fail(self, error: FrameworkError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _send_all(self, log: JobLog) -> None:
        partitions = self._partitions(log)
        while not self._closing.is_set():
            batch = self._spool.batch(partitions)
            if batch is None:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing.is_set() or len(self._spool) > 0)
                continue
            log.produce(0, 0, batch.records)
            while not log.poll():
                if self._closing.is_set() and self._patience.ended:
                    return
                log.wait(STEP_MS)
            self._spool.acknowledge(batch)
            with self._changed:
                self._changed.notify_all()

    def _partitions(self, log: JobLog) -> int:
        began_s = time.monotonic()
        while not self._closing.is_set():
            partitions = self._partitions_of(log)
            if partitions is not None:
                return partitions
            if time.monotonic() - began_s > MISSING_S:
                topic = self._spool.topic
                raise ConfigError(
                    f"topic {topic!r} is not there: check its name, or create it; what is spooled is kept", topic=topic
                )
            with self._changed:
                self._changed.wait_for(self._closing.is_set, STEP_MS / 1000)
        raise TransientError("closed")
