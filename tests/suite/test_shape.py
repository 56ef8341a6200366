"""The figures of the code's shape: on small sources, and against the table of docs/hacking.md."""

import ast

import pytest

from tests.suite import shape
from tests.suite.shape import Figure

pytestmark = pytest.mark.check  # reads one page and parses a few lines

CLASS = """
@dataclass
class Given:
    a: int
    kind: ClassVar[str] = "x"

    def more(self) -> None:
        self.b, self.c.d = 1, 2
        self.b = 3
"""


def test_an_attribute_is_counted_once() -> None:
    """Fields of a dataclass, and what a method assigns to its own object."""
    (node,) = ast.parse(CLASS).body
    assert isinstance(node, ast.ClassDef)
    assert shape.attributes(node) == {"a", "b"}


def test_floors_are_the_longest_chain() -> None:
    """Two ways of the same length are no more than one."""
    assert shape.floors({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == 3


def test_the_table_has_each_figure_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table's values are within its bounds."""
    table = [
        Figure(name, shape.number(now), goal, at_least=goal.startswith("≥"))
        for name, now, _, goal in shape.rows().values()
    ]
    assert shape.worse(table) == []
    monkeypatch.setattr(shape, "rows", lambda: {"a": ["a", "3", "3", "≤ 1"], "b": ["b", "0.5", "0.5", "≥ 1"]})
    assert shape.worse([Figure("a", 3, ""), Figure("b", 0.5, "", at_least=True)]) == []
    assert shape.worse([Figure("a", 4, "", ["here"]), Figure("b", 0.4, "", at_least=True)]) == [
        "a: 4, the bound is 3\n  here",
        "b: 0.4, the bound is 0.5",
    ]
    assert [Figure("", 1_200, "", room=500).bound(2_000), Figure("", 7, "").bound(5)] == [1_500, 5]
