"""The pytest plugin: fixtures for tests of jobs, and a flag that writes the texts that they compare with.

pytest loads it in each of its runs, so it imports the rest of Grete only where a fixture is used.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from grete.api.jobs.job import Job
    from grete.testing import Kit
    from grete.testing.service import FakeService

FOLDER = "expected"  # beside the test
UPDATE = "--grete-update"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag."""
    say = f"write the texts that grete_expected compares with, to the folder {FOLDER} beside each test"
    parser.getgroup("grete").addoption(UPDATE, action="store_true", help=say)


@pytest.fixture
def grete_kit() -> "Iterator[Callable[..., Kit]]":
    """``grete_kit(job, partitions=2)`` is ``Kit(job, partitions=2)``; each kit is closed when the test ends."""
    from grete.testing import Kit

    with ExitStack() as stack:

        def make(job: "Job", **options: Any) -> Kit:
            return stack.enter_context(Kit(job, **options))

        yield make


@pytest.fixture
def grete_service() -> "Iterator[FakeService]":
    """A web service on this machine, as ``grete.testing.service.FakeService()`` makes it, until the test ends."""
    from grete.testing.service import FakeService

    with FakeService() as service:
        yield service


@pytest.fixture
def grete_expected(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text, such as ``kit.text()``, with the file ``expected/MODULE/TEST.txt`` beside the test.

    ``--grete-update`` writes the file. A second text of a test is in ``TEST-2.txt``.
    """
    folder = request.path.parent / FOLDER / request.path.stem
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    numbers = count(1)

    def compare(text: str) -> None:
        number = next(numbers)
        path = folder / (f"{name}.txt" if number == 1 else f"{name}-{number}.txt")
        if request.config.getoption(UPDATE):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.is_file():
            pytest.fail(f"there is no {path}: run pytest {UPDATE}, then read what it has written", pytrace=False)
        expected = path.read_text("utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=2)
            pytest.fail(
                "\n".join([f"the text is not that of {path}; if it is right, run pytest {UPDATE}", *lines]),
                pytrace=False,
            )

    return compare


@pytest.fixture(scope="session")
def grete_kafka() -> Iterator[str]:
    """The address of a Kafka broker, as option ``--log`` takes it; raises NoBroker if none can be had.

    See ``grete.testing.broker``. A broker that was started ends after the last test.
    """
    from grete.testing.broker import find_broker

    with find_broker() as broker:
        yield f"kafka://{broker.bootstrap}"
