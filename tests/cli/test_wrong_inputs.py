"""Wrong inputs, made from the options, the settings and tables: each answer has a cause, a remedy and its exit code."""

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from grete.cli import command_line
from tests.cli.wrong_inputs import KINDS, WrongInput

# What an answer of ours tells the reader to do. One of the parser names the command that shows what may be written.
REMEDY = re.compile(
    r"\b(feed|write|give|name|choose|use|need|run|mend|leave|set|add|must be|known are|did you mean|there are|make|"
    r"rename|declare|define|check the path|copy|install|pipe|are subclasses|TOPIC (is )?one of|it has)\b|stages=\["
)
USAGE = re.compile(r"Try 'grete[a-z -]* --help' for help|requires an argument|Usage: grete .*--help", re.DOTALL)


def answered(wrong: WrongInput, folder: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the command in a folder with its files, as a process does; return its exit code and its standard error."""
    folder.mkdir()
    os.chdir(folder)
    for name, content in wrong.files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    path, sys.argv = [*sys.path], ["grete", *wrong.arguments]
    try:
        command_line()
    except SystemExit as ended:
        return int(ended.code or 0), capfd.readouterr().err
    finally:
        sys.path[:] = path
    raise AssertionError("a command ends by an exit code")


def unclear(wrong: WrongInput, code: int, text: str) -> str:
    """Return the fault of an answer, "" if it has none."""
    shown = " ".join(line.strip("│ ") for line in text.splitlines())
    if code != wrong.code:
        return f"exit code {code}"
    if "Traceback" in text:
        return "a traceback"
    if wrong.cause not in shown:
        return f"no cause: {wrong.cause!r}"
    if not shown.startswith(("grete: ", "{")):  # a worker's answer is a line of its log
        return "" if USAGE.search(text) else "no line of ours, and no usage"
    if len(text.splitlines()) != 1:
        return "more than a line"
    return "" if REMEDY.search(shown) else "no remedy"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_each_wrong_input_is_answered(
    kind: Callable[[], Iterable[WrongInput]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The right exit code; a line with the cause and the remedy, or the usage; never a traceback."""
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)
    found = []
    for number, wrong in enumerate(kind()):
        code, text = answered(wrong, tmp_path / str(number), capfd)
        if why := unclear(wrong, code, text):
            found.append(f"{wrong.name}: {why}: {text}")
    assert found == []


def test_there_are_more_than_six_hundred() -> None:
    """A kind that yields nothing would pass."""
    assert [kind.__name__ for kind in KINDS if len([*kind()]) < 20] == []
    assert sum(len([*kind()]) for kind in KINDS) > 600
