"""The error tree and the exit codes: one mapping, one table, and fields that survive a process boundary."""

import re
from pathlib import Path

import pytest

from framework.errors import (
    ConfigError,
    ExitCode,
    Fenced,
    FrameworkError,
    GraphError,
    Halted,
    StoreCorrupted,
    TransientError,
    exit_code,
)

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
