"""The task's clock, random numbers and identifiers; in deterministic mode a replay gives the same ones (D3)."""

import random
import time
import uuid
from collections.abc import Callable

from grete.errors import TaskError


def wall_clock_us() -> int:
    """Return the machine's time in µs since 1970."""
    return time.time_ns() // 1_000


def _no_task() -> int | None:
    raise TaskError("ctx.event_time: the task is not running: use it on a task that Grete runs")


def _no_commit(_token: str) -> None:
    raise TaskError("ctx.commit: the task is not running: use it on a task that Grete runs")


class Context:
    """A task's ``self.ctx``: the time, random numbers and identifiers of the record that is being processed.

    In deterministic mode all of them are functions of the record's logical time and of how often they were asked for,
    so that a replay after a crash gives the same; elsewhere they are the machine's.
    """

    def __init__(self, wall_us: Callable[[], int] = wall_clock_us) -> None:
        """``wall_us``: the wall clock, in µs since 1970."""
        self._wall_us = wall_us
        self.tell_event_time: Callable[[], int | None] = _no_task  # set on a running task
        self.ask_commit: Callable[[str], None] = _no_commit  # likewise

    def commit(self, token: str = "") -> None:
        """Ask for a checkpoint soon, before ``checkpoint_interval_ms`` is over; ``on_commit`` is told when it is done.

        ``token`` is what ``on_commit`` gets then, once for any number of the same. Requests are gathered: a task that
        asks with each record has one checkpoint in 50 ms at most. In aligned mode a task behind other stages commits
        when their markers come, so there its checkpoint is no earlier. Raises TaskError for a token that is no str.
        """
        self.ask_commit(token)

    def event_time(self) -> int | None:
        """Return the task's event time in ms, by which timers fire and windows close; None: no record moved it yet.

        It is the minimum over the task's inputs (Kafka Streams: stream time; Flink: the current watermark), as of the
        record before. Raises TaskError in a task without Timers(), windows and deduplicate=: it keeps none.
        """
        return self.tell_event_time()

    def now(self) -> int:
        """Return the time in ms since 1970; deterministic: when the job's source took the record in."""
        return self.now_us() // 1_000

    def now_us(self) -> int:
        """Return the time in µs since 1970; deterministic: never less than for the record before."""
        return self._wall_us()

    def random(self) -> random.Random:
        """Return a new generator of random numbers; deterministic: with its own seed at each call."""
        return random.Random()  # noqa: S311  # for a task's choices, not for secrets

    def uuid(self) -> uuid.UUID:
        """Return a new identifier (version 4); deterministic: no other call of any task of the job gives the same."""
        return uuid.UUID(int=self.random().getrandbits(128), version=4)


class LogicalContext(Context):
    """The context in deterministic mode. ``key`` gives the logical time (µs, source) of what is being processed."""

    def __init__(self, task: str, key: Callable[[], tuple[int, int]]) -> None:
        """``task`` names job, stage and partition."""
        super().__init__()
        self.calls = 0  # of ``random``, since the job began: state, so that a replay counts the same
        self._task = task
        self._key = key

    def now_us(self) -> int:
        """Return the logical time in µs."""
        return self._key()[0]

    def random(self) -> random.Random:
        """Return a generator seeded by task, logical time and the number of this call."""
        self.calls += 1
        time_us, source = self._key()
        return random.Random(f"{self._task}/{time_us}/{source}/{self.calls}")  # noqa: S311  # as above
