"""Methods of a task that take the records of one input each, in place of ``process``."""

from collections.abc import Callable, Collection, Mapping
from inspect import getattr_static
from typing import Any, TypeVar

from grete.api.record import Record
from grete.api.tasks.methods import METHODS
from grete.api.topics.topic import Input, Topic
from grete.errors import GraphError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
R = TypeVar("R")
Handler = Callable[[T, Record[K, V]], R]
Declared = dict[str, Any]  # attribute of a class → its value
_TAKES = "__grete_takes__"  # of a function: the topics whose records it takes


def on(source: Topic[K, V] | Input[K, V]) -> Callable[[Handler[T, K, V, R]], Handler[T, K, V, R]]:
    """Return a decorator of the method that takes the records of an input: ``@on(orders)``.

    A task has such a method for each of its inputs, or ``process`` for all of them. One may take several: ``@on(a)``
    above ``@on(b)``. Raises GraphError: neither a topic nor an input.
    """
    topic = source.topic if isinstance(source, Input) else source
    if not isinstance(topic, Topic):
        raise GraphError(f"@on({source!r}): write the topic, or the input: @on(orders)")

    def declare(function: Handler[T, K, V, R]) -> Handler[T, K, V, R]:
        setattr(function, _TAKES, (*getattr(function, _TAKES, ()), topic.name))
        return function

    return declare


def handlers_of(where: str, declared: Declared) -> dict[str, str]:
    """Return topic → method, of the class attributes in ``declared``. Raises GraphError: they contradict each other."""
    found: dict[str, str] = {}
    for name, value in declared.items():
        for topic in getattr_static(value, _TAKES, ()):  # a proxy would be asked for what it stands for
            if name in METHODS:
                raise GraphError(f"{where}: Grete calls {name} by its name: give the method of @on another one")
            if topic in found and found[topic] != name:
                raise GraphError(f"{where}: {found[topic]} and {name} both take topic {topic!r}: keep one")
            found[topic] = name
    return found


def check_handlers(where: str, handlers: Mapping[str, str], topics: Collection[str], other: str | None) -> None:
    """Refuse a task of which a record would have two methods, or none. ``other``: one that takes all. GraphError."""
    if other is not None:
        raise GraphError(f"{where} has both {other} and @on({next(iter(handlers))}): keep one kind")
    if strangers := sorted(handlers.keys() - set(topics)):
        name = handlers[strangers[0]]
        raise GraphError(f"{where}: {name} takes topic {strangers[0]!r}, and no Input of the task reads it")
    if missing := sorted(set(topics) - handlers.keys()):
        raise GraphError(f"{where}: no method takes topic {missing[0]!r}: add one with @on")


def declared_in(task: type) -> Declared:
    """Return the class attributes of a task by name, base classes first: those of a subclass take their place."""
    declared: Declared = {}
    for base in reversed(task.__mro__):
        declared.update(vars(base))
    return declared
