"""A connection to SQLite that a test drops fails that test, on each Python."""

import gc
import threading

import pytest

from tests.support.dropped import close_late, when_dropped

DROPS = """
import sqlite3

import pytest


@pytest.fixture(scope="module")
def kept():
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def test_drops(kept):
    holder = [sqlite3.connect(":memory:")]
    holder.append(holder)


def test_closes(kept):
    kept.execute("SELECT 1")
    sqlite3.connect(":memory:").close()
"""


def test_a_dropped_connection_fails_the_test_that_opened_it(pytester: pytest.Pytester) -> None:
    """Also one in a ring of objects, which Python finds later. One that a fixture keeps and closes fails nothing."""
    (pytester.path / "conftest.py").write_text('pytest_plugins = ["tests.suite.left_open"]\n')
    pytester.makepyfile(DROPS)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*::test_drops opened it*"])


def test_what_another_thread_drops_is_closed_in_the_thread_that_opened_it() -> None:
    """Python looks for garbage in any thread."""
    closed_in: list[int] = []

    class Owner:
        """The holder of the connection."""

    def drop() -> None:
        owners.clear()
        gc.collect()

    owners = [Owner()]
    when_dropped(owners[0], lambda: closed_in.append(threading.get_ident()))
    other = threading.Thread(target=drop)
    other.start()
    other.join()
    assert closed_in == []
    close_late()
    assert closed_in == [threading.get_ident()]
