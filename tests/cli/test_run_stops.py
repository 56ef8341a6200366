"""A command that is asked to stop ends, wherever it is."""

import signal
from pathlib import Path

import pytest

from grete.testing.broker.settings import free_port
from tests.cli.test_run import start
from tests.worker.workers import LIMIT_S

HANGS = """
import os, signal, time
from grete import Input, Job, Record, Task, Topic, utf8
class Slow:
    name = "slow"
    def encode(self, value): return value.encode()
    def decode(self, data):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # as if it came just before a sleep: no handler runs
        os.write(1, b"it hangs\\n")
        time.sleep(3600)
class Read(Task):
    lines = Input(Topic("lines", key=utf8, value=Slow()))
    def process(self, record: Record[str, str]) -> None: pass
job = Job("hangs", stages=[Read])
"""


def test_a_serde_that_hangs_does_not_outlive_a_stop(tmp_path: Path) -> None:
    """Lines are decoded before they are appended: SIGTERM ends the command, and it shows where it hung."""
    (tmp_path / "hangs.py").write_text(HANGS)
    (tmp_path / "lines.txt").write_text("a\n")
    process = start("run", "hangs.py", "--input", "lines=lines.txt", "--set", "shutdown_timeout_ms=100", cwd=tmp_path)
    assert process.stdout is not None
    assert any(line == "it hangs\n" for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert 'hangs.py", line 10 in decode' in error


@pytest.mark.parametrize("command", [["up"], ["run", "--follow"], ["worker", "--partition=0"]])
def test_a_stop_while_the_first_answer_of_a_broker_is_awaited(tmp_path: Path, command: list[str]) -> None:
    """It ends with 0, and a line: nothing had begun. A worker's line is in its log."""
    (tmp_path / "words.py").write_text("from tasks.word_count import job\n")
    log = f"--log=kafka://127.0.0.1:{free_port()}"
    process = start(command[0], "words.py", *command[1:], log, "--set=shutdown_timeout_ms=500", cwd=tmp_path)
    status, caught = Path(f"/proc/{process.pid}/status"), 1 << (signal.SIGTERM - 1)
    while not int(status.read_text().partition("SigCgt:")[2].split()[0], 16) & caught:
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    if command[0] == "worker":
        assert '"stopped while it was starting: it had processed nothing"' in err
    else:
        assert (err, out.splitlines()[-1]) == ("", "stopped before the log had answered: nothing was begun")
