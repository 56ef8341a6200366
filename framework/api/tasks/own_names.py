"""The names that a task has from Grete: a declaration or a method of such a name would hide Grete's own."""

import inspect
from collections.abc import Mapping

from grete.api.stateful.declaration import Stateful
from grete.api.store import Store
from grete.api.tasks.calls import BatchCall, Call
from grete.api.tasks.methods import METHODS
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
