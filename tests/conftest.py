"""Fixtures and hooks of all tests: Hypothesis profiles, tiers, skips as failures, and one Kafka broker."""

import gc
import logging
import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

from grete.testing.broker import Broker, NoBroker, find_broker
from grete.worker.logs.own_lines import OURS, OwnLogger
from tests.suite.tiers import NEEDS_NOTHING, TierError, heavy_functions, tier_of
from tests.support import forking
from tests.support.postgres import NoPostgres, Postgres, find_postgres

# Ours is an entry point of the package; an editable install that is older than that does not know it.
pytest_plugins = ["pytester", "grete.pytest_plugin", "tests.suite.left_open", "tests.suite.measured"]

if TYPE_CHECKING:
    from tests.support.browser import Browser

CI = os.environ.get("CI", "").lower() in {"1", "true"}

SLOW = ("spark", "verification", "chaos", "kafka")  # markers and a directory: what the slowest tests need comes first
SERVERS = (
    "spark",
    "secure",
    "postgres",
    "browser",
)  # fixtures that start a server for each process that asks: one is to ask

TREES = "nodes_of"  # its name in a module that reads them: a process makes each once
GARBAGE_MADE = 10_000  # objects that may be garbage, between two looks for it

# A build is repeatable; a developer's run explores; HYPOTHESIS_PROFILE=thorough is for a night.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if CI else "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our flags."""
    parser.addoption("--rewrite-scenarios", action="store_true", help="write tests/core/scenarios as they go now")
    parser.addoption(
        "--rewrite-lifecycle", action="store_true", help="draw the tables of docs/explanation/lifecycle.md"
    )
    parser.addoption("--pictures", action="store_true", help="take the pictures of docs/images again")


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure: what did not run is not known to work."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure here: {reason}"


def _fail_without(error: Exception) -> NoReturn:
    """Say why there is no server. With a skip, a run without it would look like a whole one."""
    pytest.fail(f"{error}. {NEEDS_NOTHING}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: all that is made lives until the end. It takes a third of the time.

    Tests then look for it more seldom than Python does by itself: that took a tenth of their computing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_MADE)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its tier, by which `-m` chooses, and put them in order."""
    heavy = heavy_functions().keys()
    for item in items:
        marks, fixtures = {mark.name for mark in item.iter_markers()}, {*getattr(item, "fixturenames", ())}
        try:
            item.add_marker(tier_of(item.nodeid, marks, fixtures, heavy))
        except TierError as error:
            raise pytest.UsageError(str(error)) from None
    _begin_with_what_takes_long(items)


def _begin_with_what_takes_long(items: list[pytest.Item]) -> None:
    """Begin with what takes long. Each process of xdist gets a part of the list and takes tests off the others' ends.

    What asks for the session of Spark comes first, so that one process has it all. The other modules that use Spark,
    and those that start brokers and workers, lead the other parts. Each module stays together, for the fixtures that it
    shares, and so do all those that ask for one of SERVERS, and those that read the trees of all sources.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1:
        return
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    groups: dict[str, list[pytest.Item]] = {"spark": []}
    for module, tests in modules.items():
        asked = {name for test in tests for name in getattr(test, "fixturenames", ())}
        shared = next((name for name in SERVERS if name in asked), None)
        trees = TREES if hasattr(getattr(tests[0], "module", None), TREES) else None
        groups.setdefault(shared or trees or module, []).extend(tests)
    parts: list[list[pytest.Item]] = [groups.pop("spark"), *([] for _ in range(processes - 1))]
    quick: list[pytest.Item] = []
    for number, tests in enumerate(sorted(groups.values(), key=_slowness)):
        into = quick if _slowness(tests)[0] == len(SLOW) else parts[1 + number % (processes - 1)]
        into += tests
    share = -(-len(items) // processes)
    for part in parts:
        room = max(share - len(part), 0)
        part.extend(quick[:room])
        del quick[:room]
    items[:] = [item for part in parts for item in part] + quick


def _slowness(tests: list[pytest.Item]) -> tuple[int, float]:
    """Return the place in SLOW of what a group needs, of the rest len(SLOW); and less, the longer a test may take."""
    needs = {mark.name for test in tests for mark in test.iter_markers()} | {*tests[0].path.parts}
    limit_s = max((mark.args[0] for test in tests for mark in test.iter_markers("timeout")), default=0.0)
    return next((place for place, name in enumerate(SLOW) if name in needs), len(SLOW)), -limit_s


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge each test's report."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge each module's report: a module may skip as a whole."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.fixture(scope="session", autouse=True)
def _programs_are_forked() -> Iterator[None]:
    """Start workers and commands without their imports."""
    with forking.installed():
        yield


@pytest.fixture
def started_by_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start them with their imports: for a test of the start itself, or of what is above it or in /proc."""
    monkeypatch.setattr(subprocess, "Popen", forking.BY_EXEC)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker: one for the whole session, whatever the number of its processes."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent  # of this session, shared by its workers
    try:
        broker = find_broker(directory / "kafka")
    except NoBroker as error:
        _fail_without(error)
    with broker:
        yield broker
        gc.collect()  # clients of logs that were closed: they would ask each second a broker that has ended


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of this process."""
    try:
        server = find_postgres()
    except NoPostgres as error:
        _fail_without(error)
    with server:
        yield server


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """A browser of this process; tests take ``browser``."""
    from tests.support.browser import NoBrowser, browsing

    with ExitStack() as opened:
        try:
            found = opened.enter_context(browsing(tmp_path_factory.mktemp("browser")))
        except NoBrowser as error:
            _fail_without(error)
        yield found


@pytest.fixture
def browser(chromium: "Browser") -> Iterator["Browser"]:
    """The browser, on no page; what it complained about in a test is not told to the next."""
    yield chromium
    chromium.leave()


@pytest.fixture
def postgres_database(request: pytest.FixtureRequest, postgres: Postgres) -> str:
    """The url of an empty database."""
    assert request.node.get_closest_marker("postgres"), "mark it with pytest.mark.postgres: `make check` leaves it out"
    return postgres.database()


@pytest.fixture(autouse=True)
def _lines_kept() -> Iterator[None]:
    """Give logging back as it was: a worker's configuration, or a job's module, takes the lines from caplog."""
    ours, own = logging.getLogger(OURS), OwnLogger.own
    before = ours.handlers, ours.propagate, ours.level
    disabled = logging.root.manager.disable
    yield
    (ours.handlers, ours.propagate), OwnLogger.own = before[:2], own
    ours.setLevel(before[2])
    logging.disable(disabled)
