"""A process that a fork server starts is like any other."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import forking
from tests.support.console import CLIENT
from tests.support.waiting import until

JOB = """
import atexit, json, os, sys, threading
from grete import Input, Job, Record, Task, Topic, utf8

told = {"pid": os.getpid(), "parent": os.getppid(), "directory": os.getcwd(), "session": os.getsid(0)}
told |= {"group": os.getpgid(0), "arguments": sys.argv[1:], "path": sys.path, "hash": hash("grete")}
told |= {"environment": dict(os.environ), "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1]}
told |= {"threads": threading.active_count(), "main": sys.modules["__main__"].__spec__.name}
told |= {"tests": [name for name in sys.modules if name.startswith("tests")]}
told |= {"ignored": open("/proc/self/status").read().split("SigIgn:")[1].split()[0]}
print(json.dumps(told), flush=True)
sys.stderr.write("an error\\n")
os.write(int(os.environ["PIPE"]), b"through the pipe")
sys.stdin.read()
sys.stdout.write("not flushed")
atexit.register(os.write, 2, b"at the exit\\n")
threading.Thread(target=lambda: (threading.main_thread().join(), os.write(2, b"a thread has ended\\n"))).start()
raise SystemExit(5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a job's file that tells of its process, and stops it."""
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def start(folder: Path, pipe: tuple[int, int], **variables: str) -> "subprocess.Popen[str]":
    """Start a command that imports the job's file."""
    variables = {**os.environ, "PIPE": str(pipe[1]), "PYTHONPATH": str(folder / "x"), **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "grete.cli", "checkpoints", "job.py", "--directory", "there"],
        cwd=folder,
        env=variables,
        pass_fds=[pipe[1]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session="SESSION" in variables,
        process_group=0 if "GROUP" in variables else None,
    )


def told(folder: Path, pipe: tuple[int, int], **variables: str) -> dict[str, Any]:
    """Return the answers of the process, with its exit code and the rest of its output."""
    process = start(folder, pipe, **variables)
    out, err = process.communicate("end")
    line, _, rest = out.partition("\n")
    found: dict[str, Any] = json.loads(line)
    assert found.pop("pid") == process.pid
    assert found.pop("session") == (process.pid if "SESSION" in variables else os.getsid(0))
    assert found.pop("group") == (process.pid if variables.keys() & {"SESSION", "GROUP"} else os.getpgid(0))
    assert os.read(pipe[0], 100) == b"through the pipe"
    return {**found, "code": process.returncode, "rest": rest, "error": err}


def until_gone(pid: int) -> None:
    """Wait until no process has the id."""
    until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("variables", [{"PYTHONHASHSEED": "0"} | own for own in ({}, {"SESSION": ""}, {"GROUP": ""})])
def test_it_gets_what_a_start_by_exec_gives(
    folder: Path, pipe: tuple[int, int], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments, environment, directory, files, group, search path, hashes and end; only the parent differs."""
    forked = told(folder, pipe, **variables)
    monkeypatch.setattr(subprocess, "Popen", forking.BY_EXEC)
    by_exec = told(folder, pipe, **variables)
    assert forked.pop("parent") != os.getpid() == by_exec.pop("parent")
    assert forked == by_exec
    assert (forked["code"], forked["rest"]) == (2, "not flushed")
    first, refused, *rest = forked["error"].splitlines()  # the job's file has ended the process
    assert (first, rest) == ("an error", ["a thread has ended", "at the exit"])
    assert refused.startswith("grete: job.py cannot be loaded: it ends the process, with 5")


def test_it_ignores_what_its_starter_ignores_now(
    folder: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers may have started when it was another: a script starts what is behind it without SIGINT."""
    told(folder, pipe, PYTHONHASHSEED="0")  # now they have
    interrupt = signal.getsignal(signal.SIGINT)
    other = signal.default_int_handler if interrupt is signal.SIG_IGN else signal.SIG_IGN
    before = {signal.SIGINT: signal.signal(signal.SIGINT, other), signal.SIGQUIT: signal.getsignal(signal.SIGQUIT)}
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        forked = told(folder, pipe, PYTHONHASHSEED="0")
        monkeypatch.setattr(subprocess, "Popen", forking.BY_EXEC)
        assert forked["ignored"] == told(folder, pipe, PYTHONHASHSEED="0")["ignored"]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_text_is_run_as_an_interpreter_runs_it() -> None:
    """Its arguments, its name, its exit code; only the parent differs, who has imported what the text imports."""
    text = "import os, sys; print(sys.argv, __name__); print(os.getppid()); sys.exit(3)"
    starts = forking.TEXT, [sys.executable, "-c"]
    forked, by_exec = (
        subprocess.run([*start, text, "a", "b"], cwd=forking.ROOT, capture_output=True, text=True, check=False)
        for start in starts
    )
    (said, parent), (expected, own) = forked.stdout.splitlines(), by_exec.stdout.splitlines()
    assert (forked.returncode, said) == (by_exec.returncode, expected) == (3, "['-c', 'a', 'b'] __main__")
    assert parent != own == str(os.getpid())


def test_it_is_killed_for_real(folder: Path, pipe: tuple[int, int]) -> None:
    """By its own id, which no other process gets until its end is known."""
    with start(folder, pipe) as process:
        assert os.read(pipe[0], 100) == b"through the pipe"
        assert process.poll() is None
        process.kill()
        assert process.wait(60) == process.poll() == -signal.SIGKILL
        until_gone(process.pid)


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED=7", "PYTHONUTF8=1", "LC_ALL=C"])
def test_what_no_server_has_read_as_it_started_is_by_exec(folder: Path, pipe: tuple[int, int], variable: str) -> None:
    """A hash seed, and all that only a new interpreter reads."""
    name, _, text = variable.partition("=")
    assert told(folder, pipe, **{name: text})["parent"] == os.getpid()


def test_what_is_left_is_killed(folder: Path, pipe: tuple[int, int]) -> None:
    """The processes of a session of tests end with it, however it ends."""
    script = """
import os, sys, tests.support.test_forking as here
from pathlib import Path
from tests.support import forking
with forking.installed():
    process = here.start(Path(sys.argv[1]), (-1, int(sys.argv[2])))
    print(process.stdout.readline(), flush=True)
    os._exit(0)
"""
    arguments = [sys.executable, "-c", script, str(folder), str(pipe[1])]
    done = subprocess.run(
        arguments, cwd=forking.ROOT, pass_fds=[pipe[1]], stdout=subprocess.PIPE, text=True, check=True
    )
    until_gone(json.loads(done.stdout)["pid"])


def test_a_server_that_is_not_asked_imports_nothing(tmp_path: Path) -> None:
    """One of the two forks, and both delete what they listened at."""
    script = """
import subprocess, sys
from tests.support import forking
with forking.installed():
    subprocess.run([sys.executable, "-m", "grete.cli", "--version"], check=True)
"""
    variables = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=forking.ROOT, env=variables, capture_output=True, text=True, check=True)
    assert done.stderr.count("| tests.support.fork_server\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, None])
def test_a_shell_starts_it_by_a_program_that_stands_for_it(
    folder: Path, pipe: tuple[int, int], how: signal.Signals | None
) -> None:
    """That ends as it ends, passes signals on, and takes it along when it is killed."""
    variables = {**os.environ, "PIPE": str(pipe[1]), "PYTHONHASHSEED": "0"}
    server = forking.server_for(variables, folder)
    assert server is not None
    (folder / "job.py").write_text(JOB.replace("os.write(", "0 and os.write("))  # it has the usual files alone
    command = [sys.executable, "-I", "-S", str(CLIENT), server, "grete.cli", "checkpoints", "job.py"]
    with forking.BY_EXEC(
        command, cwd=folder, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        found = json.loads(process.stdout.readline())
        assert found["pid"] != process.pid
        assert (found["directory"], found["group"]) == (str(folder), os.getpgid(0))
        if how is not None:
            process.send_signal(how)
        else:
            process.stdin.close()
        assert process.wait(60) == (2 if how is None else -how)
        until_gone(found["pid"])
