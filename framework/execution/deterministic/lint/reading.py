"""The findings in one piece of code."""

from dataclasses import dataclass, field
from typing import NamedTuple

from grete.execution.deterministic.lint.state import StateKey, StateWrite


class Suspicion(NamedTuple):
    """Something that may not be deterministic: line, what it is, what to use instead."""

    line: int
    what: str
    instead: str


@dataclass
class CodeReading:
    """Findings in a piece of code. ``calls``: objects that it uses, and whether they outlive a record."""

    suspicions: list[Suspicion] = field(default_factory=list)
    calls: list[tuple[object, type | None, bool]] = field(default_factory=list)  # object, class of self, self lives
    variables: list[str] = field(default_factory=list)  # of the module
    attributes: list[str] = field(default_factory=list)  # of self, or of its class
    writes: list[StateWrite] = field(default_factory=list)
    reads: list[tuple[StateKey, int]] = field(default_factory=list)
