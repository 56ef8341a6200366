"""The error tree and the exit codes: one mapping, one table, and fields that survive a process boundary."""

import ast
import json
import pickle
import re
from pathlib import Path

import pytest

from grete import errors
from grete.errors import (
    ConfigError,
    ExitCode,
    Fenced,
    FrameworkError,
    GraphError,
    Halted,
    OutputRefused,
    StoreCorrupted,
    TransientError,
    exit_code,
)
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.run.carried_errors import CarriedError, carried, unpacked

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FrameworkError)]
ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("error", "command", "worker"),
    [
        (ConfigError, 2, 4),
        (GraphError, 2, 4),
        (Fenced, 3, 3),
        (Halted, 4, 4),
        (TransientError, 1, 1),
        (StoreCorrupted, 1, 1),
        (FrameworkError, 1, 1),
        (ValueError, 1, 1),
    ],
)
def test_exit_codes_tell_errors_apart(error: type[Exception], command: int, worker: int) -> None:
    """C5. A wrong configuration is the command line's mistake (2), but halts a worker (4): no restart helps it."""
    assert (exit_code(error("x")), exit_code(error("x"), worker=True)) == (command, worker)


def test_the_documented_table_is_the_enum() -> None:
    """A service manager is configured from the table: code, meaning and advice are those of ``ExitCode``."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "| Exit code | Means" in path.read_text()]
    assert pages
    for page in pages:
        table = page.read_text().partition("| Exit code | Means")[2].partition("\n\n")[0]
        assert [(int(code), *texts) for code, *texts in ROW.findall(table)] == [
            (code.value, code.meaning, code.advice) for code in ExitCode
        ], page


def test_no_exit_code_is_written_as_a_number() -> None:
    """``sys.exit(4)`` would be a second place that knows what 4 means."""
    number = re.compile(r"sys\.exit\(\d|typer\.Exit\(\d|EXIT_[A-Z]+ *=|\bcode (?:==|!=|is) \d")
    sources = [*(ROOT / "framework").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]
    broker = ROOT / "framework/testing/broker/daemon.py"  # the broker's daemon is no command of Grete
    assert {str(path) for path in sources if path != broker and number.search(path.read_text())} == set()


def full(kind: type[FrameworkError]) -> FrameworkError:
    """Return an error with every field."""
    return kind(
        "count-0: it is broken",
        task="count-0",
        stage="count",
        partition=TopicPartition("words", 3),
        offset=17,
        checkpoint_id=9,
        setting="early_bytes_max",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_fields_survive_pickling_and_json(kind: type[FrameworkError]) -> None:
    """A caller in another process gets the class, the text and the fields, and parses no text."""
    error = full(kind)
    pickled = pickle.loads(pickle.dumps(error))  # our own
    plain = kind.from_plain(json.loads(json.dumps(error.plain())))
    for again in (pickled, plain):
        assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    refused = {"code": "GRETE-H040", "answer": "count-0: it is broken", "index": 0, "key": ""}
    assert error.plain() == (refused if kind is OutputRefused else {}) | {
        "error": str(error),
        "task": "count-0",
        "stage": "count",
        "topic": "words",
        "partition": 3,
        "offset": 17,
        "checkpoint_id": 9,
        "setting": "early_bytes_max",
    }


def test_unknown_fields_are_left_out() -> None:
    """A line of another program's log may have a partition without a topic, and keys that are none of ours."""
    assert Halted("x", offset=0).plain() == {"error": "x", "offset": 0}
    found = Halted.from_plain({"level": "ERROR", "partition": 3, "offset": 4}, "the text")
    assert (str(found), found.partition, found.topic, found.offset) == ("the text", None, None, 4)


class TooOld(Halted):
    """A class that the other side does not know."""


@pytest.mark.parametrize("kind", [*KINDS, TooOld])
def test_spark_carries_an_error_with_its_fields(kind: type[FrameworkError]) -> None:
    """Spark gives its driver the text of a traceback. A subclass from elsewhere arrives as the class that we have."""
    with pytest.raises(CarriedError) as sent, carried():
        raise full(kind)
    told = f"PythonException: Traceback (most recent call last):\n  File x\n{CarriedError.__module__}.CarriedError: "
    with pytest.raises(FrameworkError) as got, unpacked():
        raise RuntimeError(f"{told}{sent.value}\n")
    expected = Halted if kind is TooOld else kind
    assert (type(got.value), str(got.value), vars(got.value)) == (expected, str(full(kind)), vars(full(kind)))


def test_spark_carries_bytes_that_cannot_be_decoded_and_nothing_else() -> None:
    """An error that is not ours keeps Spark's text: its trace is all that explains it."""
    with pytest.raises(CarriedError) as sent, carried():
        raise DecodeError("frame: 3 bytes")
    with pytest.raises(FrameworkError, match="frame: 3 bytes"), unpacked():
        raise RuntimeError(f"CarriedError: {sent.value}")
    with pytest.raises(ZeroDivisionError), carried():
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="no space"), unpacked():
        raise RuntimeError("executor lost: no space")
    with pytest.raises(Halted), unpacked():
        raise full(Halted)


PUBLIC = [
    "framework/api",
    "framework/clients",
    "framework/testing/kit.py",
    "framework/settings.py",
]
Functions = dict[str, tuple[ast.FunctionDef, str]]  # by name, "Class.name" for a method; and what documents it


def functions_of(tree: ast.Module) -> Functions:
    """Return the functions and methods of a module. What a constructor raises may be said of the class."""
    found = {
        node.name: (node, ast.get_docstring(node) or "") for node in tree.body if isinstance(node, ast.FunctionDef)
    }
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for node in (each for each in kind.body if isinstance(each, ast.FunctionDef)):
            of_class = ast.get_docstring(kind) or "" if node.name.startswith("__") else ""
            found[f"{kind.name}.{node.name}"] = node, f"{ast.get_docstring(node) or ''} {of_class}"
    return found


def raised_by(name: str, functions: Functions, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the errors of ours that a function raises, by itself or by functions of its module that it calls."""
    errors_raised: set[str] = set()
    for node in ast.walk(functions[name][0]):
        if isinstance(node, ast.Raise) and node.exc is not None:
            errors_raised.add(ast.unparse(node.exc.func if isinstance(node.exc, ast.Call) else node.exc))
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).replace("self.", f"{name.partition('.')[0]}.")
            if called in functions and called not in seen | {name}:
                errors_raised |= raised_by(called, functions, seen | {name})
    return errors_raised & {kind.__name__ for kind in KINDS}


def undocumented(source: str) -> list[str]:
    """Return "function: error" for each error of ours that a public function raises and does not tell of."""
    functions = functions_of(ast.parse(source))
    return [
        f"{name}: {error}"
        for name, (_, told) in functions.items()
        if not re.search(r"(^|\.)_(?!_)", name)
        for error in sorted(raised_by(name, functions))
        if not any(kind.__name__ in told for kind in getattr(errors, error).__mro__ if kind is not FrameworkError)
    ]


def test_each_error_of_the_public_api_is_documented() -> None:
    """The docstring of a public function names each error that it, or a function of its module, raises."""
    places = [ROOT / each for each in PUBLIC]
    paths = [path for place in places for path in (sorted(place.rglob("*.py")) if place.is_dir() else [place])]
    assert len(paths) > 20
    assert [f"{path.relative_to(ROOT)}: {each}" for path in paths for each in undocumented(path.read_text())] == []


def test_an_error_that_is_not_documented_is_found() -> None:
    """A function raises it, a method that calls another one, or a constructor; a documented class above is enough."""
    source = """
def good(): 'Raises ConfigError.'; raise GraphError('x')
def bad(): _helps()
def _helps(): raise Halted('x')
class A:
    'Raises TaskError.'
    def __init__(self): raise TaskError('x')
    def use(self): self._use()
    def _use(self): raise SerdeError('x') from None
"""
    assert undocumented(source) == ["bad: Halted", "A.use: SerdeError"]
