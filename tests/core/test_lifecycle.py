"""The tables of states: no other change passes, the core makes all of its changes by them, and the page draws them."""

import ast
import re
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from grete.core import lifecycle
from grete.core.lifecycle import Lifecycle
from grete.core.supervision import lifecycle as of_processes

ROOT = Path(__file__).parents[2]
CORE = ROOT / "framework" / "core"
PAGE = ROOT / "docs" / "explanation" / "lifecycle.md"


def states(each: Lifecycle[Any]) -> list[Enum]:
    """Return all states of which a table may speak."""
    return list(each.first.__class__)


LIFECYCLES: dict[str, Lifecycle[Any]] = {
    name: value
    for module in (lifecycle, of_processes)
    for name, value in vars(module).items()
    if isinstance(value, Lifecycle)
}
KINDS = {type(each.first) for each in LIFECYCLES.values()}
PAIRS = [
    (name, before, after) for name, each in LIFECYCLES.items() for before, after in product(states(each), states(each))
]
ATTRIBUTES = {"status", "phase", "step", "state"}  # the attributes that hold a state


def drawn(each: Lifecycle[Any]) -> str:
    """Return a table as Markdown: the diagram of its changes, and what each state is."""
    changes = [f"    {before.name} --> {after.name}: {cause}" for (before, after), cause in each.changes.items()]
    diagram = ["```mermaid", "stateDiagram-v2", f"    [*] --> {each.first.name}", *changes]
    rows = [f"| {state.name} | {state.value} |" for state in reached(each)]
    return "\n".join(
        [*diagram, f"    {each.last.name} --> [*]", "```", "", "| state | what it is |", "|---|---|", *rows]
    )


def reached(each: Lifecycle[Any]) -> list[Enum]:
    """Return the states that can be reached from the first one, in the order of their declaration."""
    found = {each.first}
    while more := {after for before, after in each.changes if before in found} - found:
        found |= more
    return [state for state in states(each) if state in found]


def test_the_core_has_tables_for_all_of_its_states() -> None:
    """Each enumeration of lifecycle.py has a table."""
    kinds = {kind for module in (lifecycle, of_processes) for kind in vars(module).values() if isinstance(kind, type)}
    assert {kind for kind in kinds if issubclass(kind, Enum) and kind != Enum} == KINDS


@pytest.mark.parametrize(("name", "before", "after"), PAIRS)
def test_only_the_changes_of_a_table_pass(name: str, before: Enum, after: Enum) -> None:
    """A change gives the new state if the table has it; else an AssertionError names the task and both states."""
    each = LIFECYCLES[name]
    if (before, after) in each.changes:
        assert each.change("b-0", before, after) is after
    else:
        with pytest.raises(AssertionError, match=f"b-0: {each.what} does not go from {before.name} to {after.name}"):
            each.change("b-0", before, after)


@pytest.mark.parametrize("name", LIFECYCLES)
def test_each_state_can_be_left_but_the_last(name: str) -> None:
    """The last state can be reached, and no other state is a trap; of a worker process it is the first one again."""
    each = LIFECYCLES[name]
    left = {before for before, _ in each.changes}
    assert each.last in reached(each)
    assert set(reached(each)) - left == {each.last} - {each.first}
    assert left <= set(reached(each))


def test_no_state_is_set_past_its_table() -> None:
    """The core assigns a state only as the first one of a table, or as what ``change`` returns."""
    wrong, changes = [], 0
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each for target in targets for each in ast.walk(target) if isinstance(each, ast.Attribute)]
            if not any(name.attr in ATTRIBUTES for name in names) or node.value is None:
                continue
            text = ast.unparse(node.value)
            changes += ".change(" in text
            if not re.fullmatch(r"[\w.]+\.(first|change\(.*\))", text):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")
    assert wrong == []
    assert changes >= len(KINDS)


def test_the_page_draws_the_tables(request: pytest.FixtureRequest) -> None:
    """docs/explanation/lifecycle.md has each table; ``pytest --rewrite-lifecycle`` writes them: read the difference."""
    page = PAGE.read_text("utf-8")
    for name, each in LIFECYCLES.items():
        begin, end = f"<!-- {name} -->\n", "<!-- end -->"
        assert page.count(begin) == 1, f"{PAGE.name} needs one place for {name}: {begin}{end}"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{drawn(each)}\n\n{end}{rest.partition(end)[2]}"
    if request.config.getoption("--rewrite-lifecycle"):
        PAGE.write_text(page, "utf-8")
    assert page == PAGE.read_text("utf-8"), f"{PAGE.name} draws other tables: run pytest --rewrite-lifecycle"
