"""Tumbling windows in event time: a store and a timer per window, nothing else."""

import struct
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from framework.api.methods import refuse_return
from framework.api.serdes import Codec, Serde, functions_of, key_serde
from framework.api.store import Store
from framework.errors import ConfigError, TaskError

K = TypeVar("K")
V = TypeVar("V")

_START = struct.Struct(">Q")
_SIGN = 1 << 63  # flipped, the bytes of negative numbers sort before those of positive ones


class Window(msgspec.Struct, Generic[K, V], frozen=True, gc=False):
    """What ``on_window`` gets when a window closes, one per key in key order: start <= timestamp < end, in ms."""

    name: str  # of the TumblingWindow
    start: int
    end: int
    key: K
    value: V


def _pane_serde(key: Serde[K]) -> Serde[tuple[int, K | None]]:
    """Return the serde of (window start, key): a window's keys are one prefix, which is what key None gives."""
    encode_key, decode_key = functions_of(key_serde(key))

    def encode(pane: tuple[int, K | None]) -> bytes:
        start = _START.pack(pane[0] + _SIGN)
        return start if pane[1] is None else start + encode_key(pane[1])

    def decode(data: bytes) -> tuple[int, K | None]:
        return _START.unpack_from(data)[0] - _SIGN, decode_key(data[8:])

    return Codec(f"window({key.name})", (encode, decode), schema=key)


class TumblingWindow(Generic[K, V]):
    """A class attribute of a task: one value per key and window of ``size_ms``, given to ``on_window`` at its close.

    Windows are aligned to 1970. A window closes once event time (see Timers) reaches its end + ``grace_ms``. A record
    for a closed window is late: dropped, and counted in ``late``; `grete run` and `grete up` show how many there were.
    If all inputs are idle, windows stay open. What ``on_window`` sends carries the window's last ms, end - 1, unless
    given: so a window in a later stage counts it in the same period.
    """

    def __init__(self, name: str, size_ms: int, key: Serde[K], value: Serde[V], grace_ms: int = 0) -> None:
        """Declare the window; it is also a store of this name. Raises ConfigError on a bad size_ms or grace_ms."""
        if size_ms < 1 or grace_ms < 0:
            raise ConfigError(
                f"window {name!r}: size_ms = {size_ms}, grace_ms = {grace_ms}: need size_ms >= 1, grace_ms >= 0"
            )
        self.name = name
        self.key = key_serde(key)
        self.size_ms = size_ms
        self.grace_ms = grace_ms
        self.late = 0  # records dropped since this task started or rolled back: a metric, not state
        self.panes: Store[tuple[int, K | None], V] = Store(name, _pane_serde(key), value)
        self.schedule: Callable[[int, str], None] | None = None  # set, with stream_time, on a running task
        self.stream_time: Callable[[], int] = lambda: 0

    def update(self, key: K, timestamp: int, change: Callable[[V | None], V]) -> bool:
        """Replace the key's value in the window of ``timestamp`` by change(value so far or None). Return False if late.

        Raises TaskError on a window that is not part of a running task, SerdeError on a bad key or value.
        """
        if self.schedule is None:
            raise TaskError(f"window {self.name!r} is a declaration here: use it on a task that Grete runs")
        start = timestamp - timestamp % self.size_ms
        closes = start + self.size_ms + self.grace_ms
        if closes <= self.stream_time():
            self.late += 1
            return False
        pane = (start, key)
        value = self.panes.get(pane)
        if value is None:
            self.schedule(closes, "")
        self.panes.put(pane, change(value))
        return True

    def close(self, closes: int, on_window: Callable[[Window[K, V]], object]) -> None:
        """Give each value of the window that closes at ``closes`` to ``on_window`` and delete it. For the runtime."""
        end = closes - self.grace_ms
        start = end - self.size_ms
        for pane, value in self.panes.prefix((start, None)):
            window: Window[K, V] = Window(self.name, start, end, pane[1], value)  # type: ignore[arg-type]  # only a prefix has no key
            if (returned := on_window(window)) is not None:
                refuse_return("on_window", returned)
            self.panes.delete(pane)
