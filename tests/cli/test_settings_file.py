"""Settings from a file: below the environment and the command line; a mistake in it is named with its place."""

from pathlib import Path

import pytest

from grete.cli.settings_file import address_of, settings_of
from grete.errors import ConfigError
from grete.logs.address import LogAddress
from grete.settings import GROUPS, Settings
from tests.cli.test_main import grete

FILE = """
restarts_max = 7  # no table: the name says it all

[checkpoints]
checkpoint_interval_ms = 100
processing_guarantee = "at-least-once"

[workers]
restart_backoff_ms = 1_000

[log]
log = "kafka://broker:9092"
kafka_config = "client.properties"
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands look for grete.toml in the current folder."""
    monkeypatch.chdir(tmp_path)


def test_each_setting_has_one_table() -> None:
    """A person who looks for a setting in the file finds it in one place."""
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(Settings.__struct_fields__)


def test_later_sources_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults, then the file, then the environment, then --set."""
    Path("grete.toml").write_text(FILE)
    assert settings_of(None, None) == Settings(
        restarts_max=7, checkpoint_interval_ms=100, processing_guarantee="at-least-once", restart_backoff_ms=1_000
    )
    monkeypatch.setenv("GRETE_CHECKPOINT_INTERVAL_MS", "300")
    monkeypatch.setenv("GRETE_RESTARTS_MAX", "8")
    found = settings_of(["restarts_max=9"], None)
    assert (found.restart_backoff_ms, found.checkpoint_interval_ms, found.restarts_max) == (1_000, 300, 9)


def test_the_log_is_found_by_the_file() -> None:
    """The file of librdkafka's options lies beside the settings file; the command line wins."""
    Path("conf").mkdir()
    Path("conf/prod.toml").write_text(FILE)
    file = Path("conf/prod.toml")
    assert address_of(None, None, None) == LogAddress()
    assert address_of(None, None, file) == LogAddress("kafka://broker:9092", Path("conf/client.properties"))
    assert address_of("embedded", Path("other"), file) == LogAddress("embedded", Path("other"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("checkpoint_intervall_ms = 1", "unknown setting 'checkpoint_intervall_ms': did you mean checkpoint_interval_"),
        ("[memory]\nrocksdb_byte = 1", "unknown setting 'rocksdb_byte': did you mean rocksdb_bytes?"),
        ("[checkpoint]\ncheckpoint_interval_ms = 1", "unknown table [checkpoint]: did you mean checkpoints?"),
        (
            "[kafka]",
            "unknown table [kafka]: known are checkpoints, memory, streams, inputs, deterministic, workers, mem",
        ),
        ("[memory]\nrestarts_max = 1", "restarts_max is in [memory]: write it in [workers], or above all tables"),
        ("restarts_max = 1\n[workers]\nrestarts_max = 1", "restarts_max is given twice, in [workers] and above all"),
        ('[workers]\nrestarts_max = "1"', "restarts_max = '1': must be an integer, without quotes"),
        ("restarts_max = true", "restarts_max = True: must be an integer"),
        ("restarts_max = 0.5", "restarts_max = 0.5: must be an integer"),
        ("processing_guarantee = 1", 'processing_guarantee = 1: write a text, such as processing_guarantee = "…"'),
        ("[log]\nlog = 9092", "log = 9092: write a text"),
        ("restarts_max: 1", "is not TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """Exit code 2, one line with the file's name: what is wrong, and what to write."""
    Path("prod.toml").write_text(text)
    assert grete(monkeypatch, "run", "tasks.word_count", "--settings", "prod.toml") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("grete: prod.toml")
    assert words in line


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was asked for, by the option or the environment, is never left out in silence."""
    monkeypatch.setenv("GRETE_SETTINGS", "missing.toml")
    with pytest.raises(ConfigError, match=r"--settings missing\.toml: No such file"):
        settings_of(None, Path("missing.toml"))
    assert grete(monkeypatch, "run", "tasks.word_count") == 2


def test_a_job_runs_as_the_file_says(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With real workers: the log pins the file's guarantee, the environment overrides it, --set overrides both."""
    Path("lines.txt").write_text("a b a\n")
    Path("grete.toml").write_text('[checkpoints]\nprocessing_guarantee = "at-least-once"\n')
    run = ("run", "tasks.word_count", "--input", "sentences=lines.txt")
    assert grete(monkeypatch, *run) == 0
    monkeypatch.setenv("GRETE_PROCESSING_GUARANTEE", "exactly-once")
    assert grete(monkeypatch, *run) == 2
    assert "was made with guarantee at-least-once, not exactly-once" in capfd.readouterr().err
    assert grete(monkeypatch, *run, "--set", "processing_guarantee=at-least-once") == 0


def test_a_flag_wins_in_the_workers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value on the command line that happens to be the default is not replaced by a worker's environment."""
    Path("lines.txt").write_text("a b a\n")
    monkeypatch.setenv("GRETE_PROCESSING_GUARANTEE", "at-least-once")
    flag = ("--set", "processing_guarantee=exactly-once")
    assert grete(monkeypatch, "run", "tasks.word_count", "--input", "sentences=lines.txt", *flag) == 0


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("restarts_max", "many", "setting restarts_max = 'many': must be an integer"),
        ("restarts_max", "0", "setting restarts_max = 0: must be 1 or more"),
        ("restart_max", "1", "unknown setting 'restart_max': did you mean restarts_max?"),
        ("output_delivery", "twice", "setting output_delivery = 'twice': choose transactional or sequenced"),
    ],
)
def test_an_error_names_what_gave_the_value(monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str) -> None:
    """The variable, the option or the file: where a person has to look."""
    with pytest.raises(ConfigError) as error:
        settings_of([f"{name}={value}"], None)
    assert str(error.value).startswith(f"--set {name}={value}: {words}")
    variable = f"GRETE_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as error:
        settings_of(None, None)
    assert str(error.value).startswith(f"{variable}={value} in the environment: {words}")


def test_a_value_of_the_file_that_cannot_work_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also beside good values from elsewhere."""
    Path("grete.toml").write_text("restarts_max = 0")
    monkeypatch.setenv("GRETE_CHECKPOINT_INTERVAL_MS", "300")
    with pytest.raises(ConfigError, match=r"^grete\.toml: setting restarts_max = 0: must be 1 or more"):
        settings_of(["batch_bytes_max=1000"], None)
