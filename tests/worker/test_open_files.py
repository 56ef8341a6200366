"""A process raises its limit of open files to what the system allows."""

import errno
import re
import resource
import subprocess
import sys

import pytest

from grete.worker.logs.end_log import log_end

TEXT = """
import resource
from grete.worker.logs.open_files import allowed, raise_limit
before = allowed()
raise_limit()
print(before, allowed(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def after(limit: str) -> list[int]:
    """Return the numbers that the process prints: the files allowed before and after, and the limits then."""
    command = ["sh", "-c", f'ulimit {limit}; exec "$0" -c "$1"', sys.executable, TEXT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(each) for each in done.stdout.split()]


def test_a_process_takes_what_the_system_allows() -> None:
    """The soft limit becomes the hard one; where both are one, it stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 300
    assert after("-n 300") == [300, 300, 300, 300]
    assert after("-Sn 100; ulimit -Hn 300") == [300, 300, 300, 300]


def test_workers_begin_with_it() -> None:
    """The commands, and processes that a supervisor starts without them: one that gets no spec ends at once."""
    for text in (
        "import grete.cli as c, grete.cli.main as m; m.app = lambda: None; c.command_line()",
        "from grete.worker.life.process_main import main; main([])",
    ):
        told = f"{text}\nimport resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        command = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 300; exec "$0" -c "$1"', sys.executable, told]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["300"], text


NO_FILES = """
import os
from grete.worker.logs.end_log import log_end
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    os.close(taken.pop())
    log_end(error)
"""


def test_a_worker_without_files_says_what_to_raise() -> None:
    """The system's own refusal, wherever the file, socket or pipe was to be opened."""
    command = ["sh", "-c", 'ulimit -n 100; exec "$0" -c "$1"', sys.executable, NO_FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "crashed", done.stderr


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files: this process, .*raise ulimit -n"),
        (OSError(errno.ENFILE, "Too many open files in system"), "in system: .*the machine, has no files left"),
        (OSError(errno.ENOSPC, "No space left on device", "state/a.log"), "state/a.log: No space left.*make room"),
        (OSError(errno.ENOSPC, "No space left on device"), "standard output or a file: No space left"),
        (OSError(errno.ENOTTY, "Inappropriate ioctl"), None),
    ],
)
def test_what_the_system_has_none_of_ends_a_worker_with_its_remedy(
    error: OSError, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """All else is an error that Grete did not foresee, with its traceback."""
    log_end(error)
    (record,) = caplog.records
    text = getattr(record, "error", "")
    assert (record.getMessage() == "crashed", bool(text)) == (told is not None, told is not None)
    assert told is None or re.search(told, text), text
