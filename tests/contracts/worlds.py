"""A log under test: how to connect to it, and what its clock says."""

import time
from collections.abc import Callable

from framework.ports import Log


class Recent:
    """Equal to any time within a minute of now: a broker's clock cannot be set."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and abs(other - time.time() * 1000) < 60_000

    __hash__ = None  # type: ignore[assignment]


class World:
    """One log, as many connections as a test wants, and its clock; ``time`` is what the log should say that it is."""

    def __init__(self, connect: Callable[["World"], Log], *, own_clock: bool = False) -> None:
        self.now_ms = 1_000
        self.time: object = Recent() if own_clock else self.now_ms
        self._connect = connect
        self._opened: list[Log] = []

    def open(self) -> Log:
        """Return another connection to the same log."""
        self._opened.append(self._connect(self))
        return self._opened[-1]

    def close(self) -> None:
        """Close all connections."""
        for log in self._opened:
            log.close()
