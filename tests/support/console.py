"""Walks through a page as its reader does: writes its files, types its commands, compares what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support import forking

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
MARK = "@@ end of command"
BROKER = "localhost:9092"
LIMIT_S = 900  # beside thirty busy processes pages took more than 300 s
PROGRAMS = ".programs"
CLIENT = Path(__file__).with_name("forked_client.py")


class Written(NamedTuple):
    """A block with a title: a file that the reader saves."""

    name: str
    text: str


class Typed(NamedTuple):
    """A line behind ``$`` of a console block, and the lines that it prints ("" if the page shows none)."""

    command: str
    printed: str


def steps(page: str) -> list[Written | Typed]:
    """Return the steps of a reader of the page, in order."""
    found: list[Written | Typed] = []
    for language, title, text in FENCE.findall(page):
        if title:
            found.append(Written(title, text))
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, _, printed = part.partition("\n")
                found.append(Typed(command, printed.strip()))
    return found


def walk(page: str, directory: Path, *, broker: str | None = None) -> list[str]:
    """Do what the page says in a directory, in one shell; return what differs from the page.

    "…" on the page stands for any text. Without ``broker``, the walk ends at the first step that needs one; with it,
    the address takes the place of localhost:9092.
    """
    todo = steps(page)
    if broker is None:
        needs = [number for number, step in enumerate(todo) if BROKER in step[1 if isinstance(step, Written) else 0]]
        todo = todo[: min(needs, default=len(todo))]
    else:
        todo = [type(step)(*(text.replace(BROKER, broker) for text in step)) for step in todo]
    typed = [step for step in todo if isinstance(step, Typed)]
    script = "".join(_lines(step) for step in todo) + "kill $(jobs -p) 2>/dev/null; wait\n"
    done = subprocess.run(
        ["bash"], input=script, cwd=directory, env=_environment(directory, script), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    pieces = re.split(rf"{MARK} (\d+)\n", done.stdout)
    wrong = []
    for number, (step, output, code) in enumerate(zip(typed, pieces[::2], pieces[1::2], strict=False)):
        shows_code = typed[number + 1 : number + 2] and typed[number + 1].command == "echo $?"
        if (code != "0" and not shows_code) or (step.printed and not _agrees(step.printed, output)):
            wrong.append(f"$ {step.command}\nexit code {code}, printed:\n{output}\nthe page says:\n{step.printed}")
    return wrong + ([] if len(pieces) > 2 * len(typed) else ["the shell ended before the page"])


def _lines(step: Written | Typed) -> str:
    """Return a step as lines of a script. The mark has the exit code, and leaves it for the next command."""
    if isinstance(step, Written):
        return f"mkdir -p $(dirname {step.name}); cat > {step.name} <<'END-OF-FILE'\n{step.text}END-OF-FILE\n"
    return f"{step.command}\ncode=$?; echo '{MARK}' $code; (exit $code)\n"


def _agrees(printed: str, output: str) -> bool:
    """Whether the output is what the page shows. A line "…" is any number of lines; inside a line, any text."""
    lines = ["(.*\n)*" if line == "…" else _line(line) + "\n" for line in printed.splitlines()]
    return re.fullmatch("".join(lines), output.strip() + "\n") is not None


def _line(line: str) -> str:
    """Return the pattern of a line. How far the columns of a table are apart depends on what is in them."""
    parts = (re.sub(r"(\\ ){2,}", r"\\ +", re.escape(part)) for part in line.rstrip().split("…"))
    return ".*".join(parts) + " *"


def _environment(directory: Path, script: str) -> dict[str, str]:
    """Return an environment in which ``grete``, ``python`` and ``pytest`` are those of the tests.

    ``grete`` and ``pytest`` are forked, with what they start. Where the script looks for the children of a run, a run
    is none.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as users have it
    environment = inherited | {
        "PATH": f"{directory / PROGRAMS}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
        "PYTEST_PLUGINS": "grete.pytest_plugin",  # an editable install may be older than this entry point
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # others, which we have for our tests, are two thirds of a start
    }
    (directory / PROGRAMS).mkdir()
    server = forking.server_for(environment, directory)
    grete, tests = (_start(program, server) for program in ("grete.cli", "pytest -p no:cacheprovider"))
    if "pgrep" in script:
        grete = f'[ "$1" = run ] && {_start("grete.cli", None)}\n{grete}'
    python = f'[ "$1 $2" = "-m pytest" ] && shift 2 && {tests}\nexec {sys.executable} "$@"'
    for name, start in (("grete", grete), ("python", python), ("pytest", tests)):
        path = directory / PROGRAMS / name
        path.write_text(f"#!/bin/sh\n{start}\n", "utf-8")
        path.chmod(0o755)
    return environment


def _start(program: str, server: str | None) -> str:
    """Return the line of a shell that becomes a program; ``server`` forks it, if there is one."""
    start = f"-m {program}" if server is None else f"-I -S {CLIENT} {server} {program}"
    return f'exec {sys.executable} {start} "$@"'
