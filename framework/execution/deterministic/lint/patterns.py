"""Shapes of code that several rules look for."""

import ast
import functools
from collections.abc import Iterator

LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def missing(test: ast.expr) -> str:
    """Return the text of what an if finds to be None, or to be false; "": it is another if."""
    match test:
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return ast.unparse(left)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ast.unparse(operand)
        case _:
            return ""


def logs(node: ast.expr, function: object) -> bool:
    """Tell whether a call only writes to a log or the screen: no output and no state sees what it is given."""
    if function is print or getattr(function, "__module__", None) == "logging":
        return True
    return isinstance(node, ast.Attribute) and node.attr in LOG_METHODS and "log" in ast.unparse(node.value).lower()


def unwrapped(value: object) -> Iterator[tuple[object, bool]]:
    """Yield the functions in an object, and whether what they return is kept (lru_cache)."""
    if isinstance(value, functools.partial):
        yield from unwrapped(value.func)
    elif hasattr(value, "cache_info") and hasattr(value, "__wrapped__"):
        yield value.__wrapped__, True
    elif hasattr(value, "__wrapped__"):
        yield from unwrapped(value.__wrapped__)
        yield value, False
    elif hasattr(value, "__func__"):
        yield value.__func__, False
    else:
        yield value, False
