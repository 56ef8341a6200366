"""The base of windows, joins and versioned stores: declarations of a task with their own stores."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version
from grete.api.store import Store
from grete.api.topics.topic import Errors
from grete.errors import TaskError

K = TypeVar("K")
Give = Callable[[Any, int | None], None]  # a result, and the timestamp of what is sent with it
KeySlice = tuple[int, int | None]  # begin, end
ResultLetter = tuple[bytes, bytes, int, dict[str, str]]  # key, value, timestamp, and which result it is

TIME_MIN, TIME_MAX = -(1 << 63), (1 << 63) - 1  # of a timestamp
_TIME = struct.Struct(">Q")
_LENGTH = struct.Struct(">I")
TIMED_KEY: KeySlice = _LENGTH.size, -_TIME.size  # of a timed key: the key


class Stateful(ABC):
    """A class attribute of a task that keeps what it knows in stores of its own, and may call a method of the task.

    What is outdated by event time (see Timers) is deleted by timers, which are state as the stores are.
    """

    what: ClassVar[str]  # how errors and the job's definition call it: window, join, …
    method: ClassVar[str] = ""  # of the task, that ``give`` calls; empty: none
    results: ClassVar[str] = "windows"  # how an error calls several of those that it gives
    by_time: ClassVar[bool] = True  # whether event time is part of what it does
    key_at: ClassVar[KeySlice] = 0, None  # which bytes of a key in its stores are the record's key
    key: Serde[Any]

    def __init__(self, name: str) -> None:
        self.name = name
        self.late = 0  # records dropped since this task started or rolled back: a metric, not state
        self.schedule: Callable[[int, str], None] | None = None  # set, with those below, on a running task
        self.time_for: Callable[[Any], int] = lambda _: 0  # the task's event time as it is for a key, in ms
        self.errors: Errors = "fail"  # what becomes of a result if the method fails when a timer calls it
        self.give: Give = lambda _, __: None  # what the record in process has changed: an error is the record's
        self.give_due: Give = lambda _, __: None  # with a timer: an error is the result's

    @property
    def tells(self) -> bool:
        """Whether its timers lead to results. Else they only delete, and a drained job does not go on up to them."""
        return True

    @property
    def held_ms(self) -> int:
        """Return by how much older than event time a result may be, but for 1 ms."""
        return 0

    def stores(self) -> dict[str, Store[Any, Any]]:
        """Return attribute → store of those that it is made of."""
        return {attribute: value for attribute, value in vars(self).items() if isinstance(value, Store)}

    def begin(self, undone: Callable[[], int]) -> None:  # noqa: B027  # most keep nothing beside their stores
        """Begin on a running task, with its stores as they are. ``undone``: how often writes of it were taken back."""

    def check_runs(self) -> None:
        """Raise TaskError unless this is part of a running task."""
        if self.schedule is None:
            raise TaskError(f"{self.what} {self.name!r} is a declaration here: use it on a task that Grete runs")

    def which(self, result: Any) -> str:
        """Return the name of a result in errors."""
        raise NotImplementedError

    def letter(self, result: Any) -> ResultLetter:
        """Return the dead letter of a result, of those with an error policy."""
        raise NotImplementedError

    @staticmethod
    def key_of_timer(key: str) -> bytes | None:
        """Return the encoded key that a timer with this ``key`` is for; None: it is for all keys."""
        return key.encode("latin-1")

    @abstractmethod
    def fire(self, at: int, key: str) -> None:
        """Do what falls due with the timer (``at``, ``key``). For the runtime."""


def no_store(given: object) -> str:
    """Return the text of an error: what was given to read is no store; of a window or join it names those to give."""
    if isinstance(given, Stateful):
        stores = " or ".join(f".{attribute}" for attribute in given.stores())
        return f"{given.what} {given.name!r} has stores of its own: give one of them, the declaration's {stores}"
    return f"{given!r} is no store: give its declaration, an attribute of the task's class, such as CountWords.counts"


@in_each_version
def timed_key_serde(key: Serde[K]) -> Serde[tuple[K, int]]:
    """Return the serde of (key, time in ms): the times of a key are one after another in a store, in their order."""
    encode_key, decode_key = functions_of(key)

    def encode(timed: tuple[K, int]) -> bytes:
        raw = encode_key(timed[0])
        return b"%b%b%b" % (_LENGTH.pack(len(raw)), raw, _TIME.pack(timed[1] - TIME_MIN))

    def decode(data: bytes) -> tuple[K, int]:
        return decode_key(data[4:-8]), _TIME.unpack_from(data, len(data) - 8)[0] + TIME_MIN

    return Codec(f"timed({key.name})", (encode, decode), schema=key)
