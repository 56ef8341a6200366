"""A script: calls of a kit's methods as data, to be made again on another kit, or drawn by a property test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grete.api.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class KitCall:
    """One call of a method of a kit. Its text is the call as code, with the topic's name for the topic."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        given = [each.name if isinstance(each, Topic) else repr(each) for each in self.arguments]
        given += [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.method}({', '.join(given)})"
