"""The pipe from a supervisor to its worker: what the worker is to host from now on, as lines of JSON."""

import os
from contextlib import suppress

import msgspec

from grete.settings import MiB

ORDER_BYTES_MAX = 1 * MiB  # of one: the numbers of some thousands of partitions are some 10 KiB


class HostOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of a worker from now on; ``again``: those that start again though they were fenced."""

    partitions: tuple[int, ...]
    again: tuple[int, ...] = ()


def line_of(order: HostOrder) -> bytes:
    """Return an order as it goes into the pipe."""
    return msgspec.json.encode(order) + b"\n"


class ControlPipe:
    """The worker's end. Reading it never waits."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle, self._rest = handle, b""

    @property
    def has_order(self) -> bool:
        """Whether an order has come. A supervisor that has died sends none; the status pipe notices its death."""
        if b"\n" not in self._rest:
            with suppress(BlockingIOError):
                self._rest += os.read(self._handle, ORDER_BYTES_MAX)
        return b"\n" in self._rest

    def order(self) -> HostOrder | None:
        """Take the next order; None: there is none now."""
        if not self.has_order:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return msgspec.json.decode(line, type=HostOrder)
