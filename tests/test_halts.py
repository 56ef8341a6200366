"""Each halt has a code, and each code a page that says what happened, what is safe and what to do."""

import ast
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

from docs.hooks.halt_codes import part
from grete.errors import Halted
from grete.halts import PAGE, HaltCode

pytestmark = pytest.mark.check  # reads all sources: a change is looked at before it is sent

ROOT = Path(__file__).parents[1]
BY_OTHERS = {HaltCode.UNNAMED, HaltCode.CONFIGURATION}  # no place raises Halted with them
MAKE = {"Halted", "Refused"}


def raised(source: str) -> list[set[str]]:
    """Return for each Halted that a module makes the codes that it may have; an empty set if it has none."""
    if not any(f"{name}(" in source for name in MAKE):  # syntax trees take long
        return []
    tree = ast.parse(source)
    passed = {
        each.attr
        for node in ast.walk(tree)
        for each in ast.walk(node)
        if isinstance(node, ast.Call | ast.FunctionDef) and isinstance(each, ast.Attribute)
        if isinstance(each.value, ast.Name) and each.value.id == "HaltCode"
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MAKE:
            codes = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            named = {each.attr for each in codes if isinstance(each, ast.Attribute)}
            found.append(passed if codes and not named else named)  # a parameter: what is passed in this module
    return found


def test_each_halt_has_a_code_and_each_code_is_raised() -> None:
    """A Halted without a code is found, and a code that nothing raises any more."""
    used, without = set[str](), Counter[str]()
    for path in sorted((ROOT / "framework").rglob("*.py")):
        source = path.read_text()
        if "class OutputsDiffer(Halted)" in source:
            assert "code=HaltCode.NOT_DETERMINISTIC" in source
        for codes in raised(source):
            used |= codes
            without[str(path.relative_to(ROOT))] += not codes
    assert +without == {}
    assert {HaltCode[name] for name in used} == {*HaltCode} - BY_OTHERS


def test_a_halt_without_a_code_is_found() -> None:
    """The check sees a call, an attribute, and a parameter."""
    source = """
def f(code=HaltCode.LOG_LOST): raise Halted("x", code=code)
raise errors.Halted("x")
raise Halted("x", code=HaltCode.LOG_LOST)
"""
    assert sorted(map(sorted, raised(source))) == [[], ["LOG_LOST"], ["LOG_LOST"]]


def test_each_code_is_told_and_no_number_is_used_twice() -> None:
    """The page has a section for each, in the order of the numbers, with its three parts."""
    values = [code.value for code in HaltCode]
    assert values == sorted(set(values))
    sections = part().split("\n## ")
    assert re.findall(r"^## (GRETE-H\d{3})$", part(), re.MULTILINE) == values
    for section in sections:
        assert "*What is safe.*" in section
        assert "*What to do.*" in section
    assert "<!-- generate: halts -->" in (ROOT / PAGE).read_text()
    for code in HaltCode:
        for text in (code.happened, code.safe, code.remedy):
            assert text.endswith("."), code


def test_the_code_is_in_what_people_and_programs_read() -> None:
    """Once in the text; a field of the log's line; it survives a pickle and the way through a line of the log."""
    error = Halted("it is lost", code=HaltCode.LOG_LOST, task="count-0")
    assert str(error) == "GRETE-H010: it is lost"
    assert error.plain() == {"error": "GRETE-H010: it is lost", "task": "count-0", "code": "GRETE-H010"}
    for same in (pickle.loads(pickle.dumps(error)), Halted.from_plain(error.plain())):
        assert (str(same), same.code, same.task) == (str(error), HaltCode.LOG_LOST, "count-0")
    assert str(Halted.from_plain(error.plain(), "worker 0 halted: GRETE-H010: it is lost")).count("GRETE-H010") == 1
    assert HaltCode.LOG_LOST.page == "docs/reference/halts.md#grete-h010"
