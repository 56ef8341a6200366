"""A plugin of pytest: a connection to SQLite that is dropped before it was closed fails the test that it is dropped in.

Python 3.13 warns of such a connection when it looks for garbage, in whatever test that is. Here, each Python fails, and
says which test opened the connection and where. Tests of `make test` that are not of `make check` are left out as yet.
"""

import gc
import sqlite3
import traceback
import weakref
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.dropped import close_late

ROOT = Path(__file__).parents[2]
FRAMES = 12  # of those that opened it; the rest is pytest's
_CONNECT = sqlite3.connect


@dataclass(slots=True)
class _Noticed:
    """The facts noticed since the last look."""

    test: str = "before all tests"  # the one that runs
    judged: bool = True
    opened: "list[weakref.ref[Connection]]" = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


_noticed = _Noticed()


class Connection(sqlite3.Connection):
    """A connection that knows whether it was closed, and who opened it."""

    closed = True  # until it is open

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.closed = False
        self.test, self.judged = _noticed.test, _noticed.judged
        self.stack = traceback.StackSummary.extract(traceback.walk_stack(None), limit=FRAMES, lookup_lines=False)
        _noticed.opened.append(weakref.ref(self))

    def close(self) -> None:
        super().close()
        self.closed = True

    def __del__(self) -> None:
        if not self.closed and self.judged:
            _noticed.dropped.append(f"{self.test} opened it\n{_told(self.stack)}")
            with suppress(sqlite3.ProgrammingError):  # of another thread; the process has it until its end
                self.close()


def _told(stack: traceback.StackSummary) -> str:
    """Return the frames of this repository, the innermost first."""
    frames = [(Path(each.filename), each) for each in stack]
    ours = [
        f"  {path.relative_to(ROOT)}:{each.lineno} {each.name}" for path, each in frames if path.is_relative_to(ROOT)
    ]
    return "\n".join(ours[2:])  # the first ones are of this module


def _connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
    """Open a file of SQLite as ``sqlite3.connect`` does."""
    options.setdefault("factory", Connection)
    opened: sqlite3.Connection = _CONNECT(*arguments, **options)
    return opened


def pytest_configure() -> None:
    """Notice each connection from here on."""
    sqlite3.connect = _connect  # type: ignore[assignment]  # the same, noticed


def pytest_unconfigure() -> None:
    """Leave SQLite as it was."""
    sqlite3.connect = _CONNECT


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Know which test opens connections."""
    _noticed.test, _noticed.judged = item.nodeid, item.get_closest_marker("test") is None
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Fail if a connection was dropped. Garbage is looked for only behind a test that left one open."""
    yield
    close_late()
    if any(each is not None and not each.closed for each in [opened() for opened in _noticed.opened]):
        gc.collect()
    _noticed.opened.clear()
    if _noticed.dropped:
        told, _noticed.dropped = _noticed.dropped, []
        raise LeftOpenError(
            f"of connections to SQLite that were dropped, and not closed, there are {len(told)}:\n" + "\n".join(told)
        )


class LeftOpenError(Exception):
    """A connection to SQLite was dropped before it was closed."""
