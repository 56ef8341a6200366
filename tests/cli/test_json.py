"""``--json``: every command that reads prints an object a line, which a program can take."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.settings import Settings

JOB = "tasks.word_count"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a job that has counted six words."""
    folder = tmp_path_factory.mktemp("json")
    lines = folder / "lines.txt"
    lines.write_text("to be or not to be\n")
    done = CliRunner().invoke(app, ["run", JOB, f"--directory={folder / 'job'}", f"--input=sentences={lines}"])
    assert done.exit_code == 0, done.output
    return folder / "job"


def printed(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    """Return the lines that a command prints."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_state(directory: Path) -> None:
    """Entries have keys and values as JSON has them."""
    place = f"--directory={directory}"
    assert printed("state", "get", JOB, "counts", "be", place) == [{"key": "be", "value": 2}]
    assert printed("state", "get", JOB, "counts", "none", place, code=1) == []
    assert {row["key"]: row["value"] for row in printed("state", "scan", JOB, "counts", place)} == {
        "be": 2, "not": 1, "or": 1, "to": 2,
    }  # fmt: skip
    (size,) = printed("state", "sizes", JOB, place)
    assert (size["store"], size["entries"], size["oldest_ms"]) == ("counts", 4, None)


def test_what_the_job_has_written(directory: Path) -> None:
    """Records, commits and messages of a changelog."""
    place = f"--directory={directory}"
    last = printed("topic", "read", JOB, "word-totals", "-n", "1", place)
    assert [(row["offset"], row["key"], row["value"], row["headers"]) for row in last] == [(5, "be", 2, [])]
    (checkpoint,) = printed("checkpoints", JOB, place)
    assert checkpoint["inputs"] == {"sentences[0]": {"offset": 1, "end": 1}}
    messages = printed("changelog", "tail", JOB, "count-words", "0", place)
    assert {"claim", "data", "commit"} <= {row["type"] for row in messages}
    (verified,) = printed("changelog", "verify", JOB, place)
    assert verified["task"] == "count-words-0"


def test_config_says_where_a_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default, file, environment, command line: the last one wins, and is named."""
    monkeypatch.chdir(tmp_path)
    Path("grete.toml").write_text(
        'log = "kafka://broker:9092"\ncheckpoint_interval_ms = 300\nidle_checkpoint_interval_ms = 9000\n'
    )
    monkeypatch.setenv("GRETE_IDLE_CHECKPOINT_INTERVAL_MS", "8000")
    rows = {row["name"]: row for row in printed("config", "--set", "restarts_max=3")}
    assert rows.keys() >= set(Settings.__struct_fields__)
    found = {name: (row["value"], row["origin"]) for name, row in rows.items()}
    assert found["log"] == ("kafka://broker:9092", "grete.toml")
    assert found["kafka_config"] == (None, "default")
    assert found["checkpoint_interval_ms"] == (300, "grete.toml")
    assert found["idle_checkpoint_interval_ms"] == (8000, "environment: GRETE_IDLE_CHECKPOINT_INTERVAL_MS")
    assert found["restarts_max"] == (3, "--set")
    assert found["frame_bytes_max"] == (Settings().frame_bytes_max, "default")
    shown = CliRunner().invoke(app, ["config", "--log", "kafka://other:9092"]).stdout
    assert "kafka://other:9092" in shown
    assert "--log" in shown


def test_a_shell_can_complete() -> None:
    """Asked as bash asks, the program names the commands that begin so."""
    asked = {"_GRETE_COMPLETE": "complete_bash", "COMP_WORDS": "grete check", "COMP_CWORD": "1"}
    done = CliRunner().invoke(app, [], prog_name="grete", env=asked)
    assert done.stdout.split() == ["check-determinism", "checkpoints"]
