"""The pipe from a supervisor to its worker: what the worker is to host from now on, as lines of JSON."""

import os

import msgspec

from grete.settings import MiB

ORDER_BYTES_MAX = 1 * MiB  # of one: the numbers of some thousands of partitions are some 10 KiB


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions of a worker from now on; ``again``: those that start again though they were fenced."""

    partitions: tuple[int, ...]
    again: tuple[int, ...] = ()


def line_of(order: Order) -> bytes:
    """Return an order as it goes into the pipe."""
    return msgspec.json.encode(order) + b"\n"


class ControlPipe:
    """The worker's end. Reading it never waits."""

    def __init__(self, handle: int) -> None:
        os.set_blocking(handle, False)
        self._handle, self._rest = handle, b""

    def order(self) -> Order | None:
        """Return the next order, None: there is none now, or the supervisor is gone, which the status pipe notices."""
        if b"\n" not in self._rest:
            try:
                self._rest += os.read(self._handle, ORDER_BYTES_MAX)
            except BlockingIOError:
                return None
        line, ends, rest = self._rest.partition(b"\n")
        if not ends:
            return None
        self._rest = rest
        return msgspec.json.decode(line, type=Order)
