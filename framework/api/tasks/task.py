"""The base class of a stage's code."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from grete.api.stateful.declaration import Stateful
from grete.api.store import Store
from grete.api.tasks.calls import BatchCall, Call
from grete.api.tasks.context import Context
from grete.api.tasks.methods import METHODS
from grete.api.tasks.mode import Mode
from grete.api.tasks.timers import Timers
from grete.api.topics.topic import Input, Output
from grete.errors import GraphError

_DECLARED = (Input, Output, Store, Stateful, Timers, Call, BatchCall)
_VALUES = {
    "name": "the stage's name, a text",
    "renamed_from": "the name that the stage had first, a text",
    "mode": "the stage's mode, a text",
    "partitions": "how many tasks the stage has, a number",
    "in_flight": "how many records wait for calls at a time, a number",
}


class Task:
    """The code of one stage. A subclass has Input, Output, Store, Timers, windows and joins as class attributes.

    Its methods:
    - ``process(self, record)`` for each record, or ``process_batch(self, records)`` for a list of them, or a method
      ``@on(topic)`` for the records of each input, not two of these;
    - ``on_timer(self, timer)`` if it declares Timers, ``on_window(self, window)`` if it declares a window,
      ``on_join(self, pair)`` if it declares a join; ``on_commit(self, tokens)`` if it asks for checkpoints.
    They are plain functions that return None: a coroutine, a generator or a value would be dropped, so it is refused.
    Only ``process``, and a method ``@on(topic)``, may be an ``async def``, to await Calls; ``in_flight`` bounds the
    records that do so at a time.

    A new instance is made at each start and after each rollback: only stores are durable, other attributes are caches.
    Keep to one thread, and touch nothing outside but through declared outputs: what else it does may happen twice.
    """

    name: ClassVar[str]  # of the stage; by default the class name in kebab case: CountWords → count-words
    renamed_from: ClassVar[str]  # the name that the stage had first: its topics, directories and state have it for good
    mode: ClassVar[Mode]  # of the stage; by default the job's
    partitions: ClassVar[int]  # of the stage, each a task; by default the job's
    in_flight: ClassVar[int] = 64  # records of a task whose async process has begun and has not taken effect
    ctx: Context = Context()  # the time and random numbers to use; each instance has its own

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class that hides what every task has. Raises GraphError."""
        super().__init_subclass__(**options)
        refuse_hiding(cls, vars(Task))

    def init(self) -> None:
        """Prepare: stores and timers hold the restored state; sending is not possible yet."""

    def on_commit(self, tokens: tuple[str, ...]) -> None:
        """Learn that what the records of these ``ctx.commit(token)`` have done is committed, and survives any crash.

        Tokens come in the order in which they were asked first. A crash between commit and call leaves the call out.
        Stores may be read; to change one, or to send, is refused: it would belong to no record.
        """

    def close(self) -> None:
        """Release what ``init`` took. Called at a graceful end and before a rollback, never after a crash."""


def refuse_hiding(task: type, own: Mapping[str, object]) -> None:
    """Raise GraphError if a class has something else by a name of Grete's. ``own``: what Grete has by some of them."""
    for name in ("ctx", *_VALUES, *METHODS):
        value = inspect.getattr_static(task, name, None)
        if value is own.get(name):
            continue
        if name == "ctx":
            meant = "the task's context: its time and random numbers"
        elif name in _VALUES and (isinstance(value, (*_DECLARED, property)) or inspect.isroutine(value)):
            meant = _VALUES[name]
        elif name in METHODS and (isinstance(value, _DECLARED) or not _is_called(value)):
            meant = f"a method that Grete calls, {name}(self, …)"
        else:
            continue
        raise GraphError(
            f"task {task.__name__}: {name!r} is a {type(value).__name__}, and by this name Grete has {meant}: give "
            "yours another name"
        )


def _is_called(value: object) -> bool:
    """Tell whether it can be a method: a function in any wrapping, or an object that is called as one."""
    return callable(value) or hasattr(type(value), "__get__")
