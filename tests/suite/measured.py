"""A plugin of pytest: what each test took, and what it waited for, into ``.times`` of this repository.

Of each test: its time, the computing of this process and of all that it and its children started, the processes that it
started, the seconds that it slept, and the RocksDB stores that it opened, with their seconds. The process that hands
out the tests (``-n``) writes a file when all have ended; a run in one process writes none. ``make times`` shows them.
"""

import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grete.stores.rocksdb.store import RocksStore
from tests.suite.tiers import NEEDS, TIERS

FOLDER = ".times"
FAILED = "failed.txt"  # there, behind the time of a start: what has failed so far, if a run is cut or watched
_KEY = "measured"  # of a report's properties
_LEFT = "measured-left"  # of what a process of xdist hands over at its end
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Row(msgspec.Struct):
    """One test. Seconds are of a clock, but for ``own_s`` and ``others_s``, which are of computing."""

    test: str
    tier: str
    needs: list[str]
    outcome: str = "passed"
    setup_s: float = 0.0
    call_s: float = 0.0
    teardown_s: float = 0.0
    own_s: float = 0.0  # the process of pytest
    others_s: float = 0.0  # what it started, and what that started
    started: int = 0
    slept_s: float = 0.0
    stores: int = 0
    stores_s: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds that the test took of a worker of pytest."""
        return self.setup_s + self.call_s + self.teardown_s


class Session(msgspec.Struct):
    """One run of pytest."""

    began_s: float  # since 1970
    seconds: float
    cpu_s: float  # of all its processes that have ended and were waited for
    left_s: float  # of those that had not, as the tests ended: servers
    workers: int
    rows: list[Row]


@dataclass(slots=True)
class _Counted:
    """Since the process began."""

    started: int = 0
    slept_s: float = 0.0
    stores: int = 0
    stores_s: float = 0.0


_counted = _Counted()


def _count_processes() -> None:
    begin = subprocess.Popen.__init__

    @functools.wraps(begin)
    def started(process: Any, *given: Any, **named: Any) -> None:
        _counted.started += 1
        begin(process, *given, **named)

    subprocess.Popen.__init__ = started  # type: ignore[assignment]  # the same, counted
    sys.addaudithook(_forked)


def _forked(event: str, _: tuple[Any, ...]) -> None:
    if event == "os.fork":
        _counted.started += 1


def _count_sleeps() -> None:
    sleep = time.sleep

    def slept(seconds: Any, /) -> None:
        if threading.current_thread() is threading.main_thread():  # the test itself, or what it called
            _counted.slept_s += seconds
        sleep(seconds)

    time.sleep = slept


def _count_stores() -> None:
    begin: Callable[..., None] = RocksStore.__init__

    @functools.wraps(begin)
    def opened(*given: Any, **named: Any) -> None:
        at_s = time.monotonic()
        try:
            begin(*given, **named)
        finally:
            _counted.stores += 1
            _counted.stores_s += time.monotonic() - at_s

    RocksStore.__init__ = opened


def computed_s(pid: int | str) -> float:
    """Return the computing of a process and of its children that have ended; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) * _TICK_S


def _children(pid: int | str) -> list[str]:
    found = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names are all that is asked for
            found += Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii").split()
    except OSError:
        return found  # it has ended
    return found


def others_s() -> float:
    """Return the computing of all processes below this one, and of those that have ended."""
    ended = os.times()
    return ended.children_user + ended.children_system + sum(map(computed_s, _below()))


def _below() -> list[str]:
    found = _children("self")
    for pid in found:
        found += _children(pid)
    return found


class Measuring:
    """In the process that runs tests: adds a Row to the last report of each."""

    def __init__(self) -> None:
        """Begin to count."""
        _count_processes()
        _count_sleeps()
        _count_stores()
        self._others_s = others_s()
        self._row = Row("", "", [])
        self._before = _Counted()
        self._own_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note what was counted before the test."""
        self._row = Row(nodeid, "", [])
        self._before = _Counted(_counted.started, _counted.slept_s, _counted.stores, _counted.stores_s)
        self._own_s = time.process_time()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add what the part took; behind the last part, the rest."""
        report = yield
        row = self._row
        setattr(row, f"{report.when}_s", round(report.duration, 4))
        if report.outcome != "passed" and not hasattr(report, "wasxfail"):
            row.outcome = report.outcome
        if report.when == "teardown":
            self._end(row, {mark.name for mark in item.iter_markers()})
            report.user_properties.append((_KEY, msgspec.to_builtins(row)))
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell what is below this process, which no process waits for: a broker ends with its last user."""
        output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]  # of xdist
        output[_LEFT] = sum(map(computed_s, _below()))

    def _end(self, row: Row, marks: set[str]) -> None:
        row.tier = next((tier for tier in TIERS if tier in marks), "")
        row.needs = sorted(marks & NEEDS)
        row.own_s = round(time.process_time() - self._own_s, 4)
        row.started = _counted.started - self._before.started
        row.slept_s = round(_counted.slept_s - self._before.slept_s, 4)
        row.stores = _counted.stores - self._before.stores
        row.stores_s = round(_counted.stores_s - self._before.stores_s, 4)
        if row.started or row.needs:  # what computes behind the others waits for the next of these
            now_s = others_s()
            row.others_s = round(max(now_s - self._others_s, 0.0), 4)
            self._others_s = now_s


class Writing:
    """In the process that hands out the tests: keeps the rows and writes them."""

    def __init__(self, folder: Path, workers: int) -> None:
        """``workers``: processes that run tests."""
        self._folder, self._workers = folder, workers
        self._began_s, self._clock_s, self._cpu_s = time.time(), time.monotonic(), sum(os.times()[:4])
        self._rows: list[Row] = []
        self._left_s = 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a process hands over."""
        self._left_s += getattr(node, "workeroutput", {}).get(_LEFT, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the row that the last report of a test has; one that failed can be read at once, in FAILED."""
        found = [each for name, each in report.user_properties if name == _KEY]
        self._rows += msgspec.convert(found, list[Row])
        if report.failed:
            self._folder.mkdir(exist_ok=True)
            with (self._folder / f"{self._began_s:.0f}-{FAILED}").open("a") as file:
                file.write(f"=== {report.nodeid}: {report.when}\n{report.longreprtext}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Write: the processes that ran the tests have ended."""
        if not self._rows:
            return
        took_s, cpu_s = time.monotonic() - self._clock_s, sum(os.times()[:4]) - self._cpu_s
        session = Session(self._began_s, took_s, cpu_s, self._left_s, self._workers, self._rows)
        self._folder.mkdir(exist_ok=True)
        (self._folder / f"{self._began_s:.0f}.json").write_bytes(msgspec.json.encode(session))


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, write where they are handed out."""
    workers = getattr(config.option, "tx", None) or []
    if workers:
        config.pluginmanager.register(Writing(config.rootpath / FOLDER, len(workers)), "times-written")
    elif hasattr(config, "workerinput"):
        config.pluginmanager.register(Measuring(), "times-measured")
