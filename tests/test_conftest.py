"""The test suite's own rules hold: see conftest.py."""

from pathlib import Path

import pytest

SKIPPING = """
import pytest

def test_skips():
    pytest.skip("no broker answers at the given address")
"""


def test_a_skip_is_a_failure(pytester: pytest.Pytester) -> None:
    """A test that did not run proves nothing, on any machine: the run names its reason, and fails."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a skip is a failure here: *no broker answers*"])


ASKS_FOR_A_BROKER = """
import pytest

@pytest.mark.kafka
def test_asks(kafka_broker):
    pass
"""


def test_a_broker_that_cannot_be_had_is_an_error(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was tried, and which command does without."""
    monkeypatch.delenv("GRETE_KAFKA", raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{pytester.path}/none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path))  # no jars
    monkeypatch.setenv("PATH", "")  # and no Maven that fetches some
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(ASKS_FOR_A_BROKER)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--disable-warnings")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*no Kafka broker can be had: set GRETE_KAFKA=*", "*`make check` runs the tests that need*"]
    )


def test_a_skipped_module_is_a_failure(pytester: pytest.Pytester) -> None:
    """A module that skips as a whole while it is collected fails the build too."""
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile("import pytest\n\npytest.importorskip('no_such_module_anywhere')\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(errors=1)


MARKED = """
import pytest

@pytest.mark.{mark}
@pytest.mark.parametrize("number", range(2))
def test_marked(number):
    pass
"""


ASKING = """
import pytest

@pytest.fixture(scope="session")
def secure():
    return None

@pytest.mark.kafka
@pytest.mark.parametrize("number", range(2))
def test_of_kafka(number, {fixture}):
    pass
"""


def test_modules_that_ask_for_one_server_are_of_one_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three processes, one has both modules of the secure broker: else each of two starts one."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(
        **{f"test_{n}": ASKING.format(fixture="secure" if n in (0, 3) else "tmp_path") for n in range(4)}
    )
    done = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:xdist", "--disable-warnings")
    found = [line.partition(".py::")[0] for line in done.outlines if "::" in line]
    assert [int(module.removeprefix("test_")) for module in found] == [0, 0, 3, 3, 2, 2, 1, 1]


def test_each_part_of_the_list_begins_with_what_is_slow(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes, the first has all that asks for the session of Spark; the second begins with what is slow."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    marks = ["usefixtures()", "kafka", "spark\n@pytest.mark.usefixtures('spark')", "chaos", "spark", "usefixtures()"]
    pytester.makepyfile(**{f"test_{n}": MARKED.format(mark=mark) for n, mark in enumerate(marks)})
    done = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:xdist", "--disable-warnings")
    found = [line.partition(".py::")[0] for line in done.outlines if "::" in line]
    assert [int(module.removeprefix("test_")) for module in found] == [2, 2, 0, 0, 5, 5, 4, 4, 3, 3, 1, 1]


def test_of_two_modules_the_one_with_a_longer_limit_begins(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module asks for a longer limit because it takes long: at the end, one process would work on it alone."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    marks = ["kafka", "timeout(300)", "timeout(600)\n@pytest.mark.kafka", "timeout(300)\n@pytest.mark.kafka", "chaos"]
    pytester.makepyfile(**{f"test_{n}": MARKED.format(mark=mark) for n, mark in enumerate(marks)})
    done = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:xdist", "--disable-warnings")
    found = [line.partition(".py::")[0] for line in done.outlines if "::" in line]
    assert [int(module.removeprefix("test_")) for module in found[::2]] == [1, 4, 2, 3, 0]
