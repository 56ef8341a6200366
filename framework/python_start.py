"""Starts of Python processes that import nothing from the current folder.

Python's ``-m`` and ``-c`` look for modules in the current folder first, and so does an empty entry of PYTHONPATH. In a
shared folder, or in an archive that was unpacked, that is somebody else's code.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAFE = "PYTHONSAFEPATH"  # the variable that is -P


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in this interpreter's environment, not in the current folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """Return the variables of this process for another Python; of PYTHONPATH all but the current folder.

    A relative entry, such as ``src``, is where it is for this process, which has found the job there.
    """
    here = str(Path.cwd())
    named = ((each, os.path.normpath(Path(here, each))) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return _with_path([place for each, place in named if each == place or place != here])


def environment_with_path() -> dict[str, str]:
    """Return the same for a Python that needs all modules that this process finds, in the same order."""
    return _with_path(sys.path)


@contextmanager
def started_by_others() -> Iterator[None]:
    """Let a Python that a library starts in here keep to the same, where its command is not ours to write."""
    before = {name: os.environ.get(name) for name in (SAFE, "PYTHONPATH")}
    os.environ.update(environment_with_path() | {SAFE: "1"})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _with_path(path: list[str]) -> dict[str, str]:
    kept = os.pathsep.join(place for place in path if os.path.isabs(place))  # noqa: PTH117  # a Path of "" is ".", which is not asked
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return others | {"PYTHONPATH": kept} if kept else others
