"""Bounds of the duration of ``make check`` and ``make test``, on a quiet machine of two cores.

No test takes the time: a machine is as fast as what runs beside it. What a whole run took is kept, by
``make times WRITE=1``, and the test functions that came since count as those beside them do.
"""

import ast
import csv
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, get_args

import msgspec

Command = Literal["check", "test"]
COMMANDS: tuple[Command, ...] = get_args(Command)
BOUNDS_S: dict[Command, float] = {"check": 150, "test": 840}
REACHED_S: dict[Command, float] = {"test": 1_400}  # not within its bound yet: no commit may make it longer than this
FLOOR_SHARE = 1.15  # of the floor, where that is more: what waits cannot be nothing
TIMES = Path(__file__).with_name("times.csv")  # of each module, at the last run that was kept


class Taken(msgspec.Struct, frozen=True):
    """The duration of a command, from its first line to its last."""

    command: Command
    seconds: float
    cpu_s: float  # of make and all that it waited for
    cores: int
    commit: str

    @property
    def bound_s(self) -> float:
        """Return the bound of its time, in seconds."""
        return max(BOUNDS_S[self.command], FLOOR_SHARE * floor_s(self))

    @property
    def held_s(self) -> float:
        """Return the limit of today, in seconds: its bound, or the time that was reached on the way there."""
        return max(self.bound_s, REACHED_S.get(self.command, 0.0))


def floor_s(taken: Taken) -> float:
    """Return the seconds that the command would take if no core ever waited."""
    return taken.cpu_s / taken.cores


def functions_in(text: str) -> int:
    """Return the number of test functions in the text of a module, without those of `make prove` and `make ship`."""
    module = ast.parse(text)
    marks = [node.value for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    if any(map(_is_of_others, marks)):
        return 0
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    return sum(node.name.startswith("test_") and not any(map(_is_of_others, node.decorator_list)) for node in functions)


def _is_of_others(marks: ast.expr) -> bool:
    """Tell whether a marker, or one of a list of them, keeps a test out of `make check` and `make test`."""
    each = marks.elts if isinstance(marks, ast.List) else [marks]
    return any(isinstance(mark, ast.Attribute) and mark.attr in ("prove", "ship") for mark in each)


class Took(NamedTuple):
    """The test functions of a module at the last run that was kept, and the seconds that they took of workers."""

    functions: int
    worker_s: float


def counted() -> dict[str, Took]:
    """Return module → what its tests took."""
    with TIMES.open(newline="") as file:
        return {row["module"]: Took(int(row["functions"]), float(row["worker_s"])) for row in csv.DictReader(file)}


def usual_s(module: str, then: Mapping[str, Took]) -> float:
    """Return the mean time of a function in the module, else in its folder, else in the one around that, and so on."""
    for place in (module, *map(str, PurePosixPath(module).parents)):
        there = [took for name, took in then.items() if f"{name}/".startswith(f"{place}/") or place == "."]
        if functions := sum(took.functions for took in there):
            return sum(took.worker_s for took in there) / functions
    return 0.0


def expected_s(taken: Taken, then: Mapping[str, Took], now: Mapping[str, int]) -> float:
    """Return the time that the command takes by now, if functions that are new take as long as their neighbours."""
    none = Took(0, 0.0)
    new = {module: functions - then.get(module, none).functions for module, functions in now.items()}
    new_s = sum(functions * usual_s(module, then) for module, functions in new.items() if functions > 0)
    return taken.seconds * (1 + new_s / max(sum(took.worker_s for took in then.values()), 1.0))
