"""Search for results that depend on the order of a set."""

import ast
from typing import Final

from grete.execution.deterministic.lint.scope import Code

ANY_ORDER: Final = {"any", "all", "set", "frozenset", "len", "sorted", "min", "max", "fsum", "sum", "bool"}
IN_ORDER: Final = {"list", "tuple", "enumerate", "iter", "next", "zip", "map", "filter", "str", "repr", "format", "sum"}
OF_LIBRARIES: Final = {
    "join",
    "fromkeys",
    "dumps",
    "dump",
    "deque",
    "chain",
    "islice",
    "accumulate",
    "reduce",
    "extend",
}
WHOLE: Final = {"len", "int", "ord", "bool"}  # functions that give whole numbers: they add up alike in every order


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def in_any_order(call: ast.Call) -> bool:
    """Tell whether what a call makes of its elements does not depend on their order."""
    name = _name(call.func)
    if name not in ANY_ORDER or any(keyword.arg == "key" for keyword in call.keywords):
        return False
    if name != "sum":
        return True
    match call.args[0]:
        case ast.GeneratorExp(elt=ast.Call(func=function)):
            return _name(function) in WHOLE
        case ast.GeneratorExp(elt=ast.Constant(value=int())):
            return True
        case _:
            return False


def set_in_order(code: Code, call: ast.Call) -> bool:
    """Tell whether a call takes the elements of a set in their order."""
    name = _name(call.func)
    if isinstance(call.func, ast.Attribute) and name == "pop" and not call.args:
        return code.is_set(call.func.value)
    with_key = name in ("sorted", "min", "max") and any(keyword.arg == "key" for keyword in call.keywords)
    if name not in IN_ORDER | OF_LIBRARIES and not with_key:
        return False
    return any(code.is_set(argument) for argument in call.args)
