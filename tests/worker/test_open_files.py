"""A process raises its limit of open files to what the system allows."""

import resource
import subprocess
import sys

TEXT = """
import resource
from grete.worker.open_files import allowed, raise_limit
before = allowed()
raise_limit()
print(before, allowed(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def after(limit: str) -> list[int]:
    """Return what is allowed before and after, and the limits then."""
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
        "from grete.worker.process_main import main; main([])",
    ):
        told = f"{text}\nimport resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        command = ["sh", "-c", 'ulimit -Sn 100; ulimit -Hn 300; exec "$0" -c "$1"', sys.executable, told]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["300"], text
