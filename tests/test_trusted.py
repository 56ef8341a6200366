"""Files that another user could change are not used; a job's own files and lines are for its user only."""

import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from grete import trusted
from grete.cli.output.reading import print_json
from grete.cli.settings_file import settings_of
from grete.errors import ConfigError
from grete.file_lock import open_lock
from grete.job.directory import JobDirectory
from grete.logs.address import read_options
from grete.settings import Settings, without_password
from grete.state.read.shown import printable, to_text
from grete.stores.store_directory import make_private
from grete.worker.life.process_main import spec_in
from grete.worker.supervisor.process_pool import ProcessPool
from tests.cli.test_run import grete

STRANGER = os.geteuid() + 1


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be another user than the one who owns the files, and not root; it may still read them."""
    real = Path.stat

    def owned(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = real(path, follow_symlinks=follow_symlinks)
        return os.stat_result([*found[:4], STRANGER, *found[5:10]])

    monkeypatch.setattr(Path, "stat", owned)


@pytest.mark.usefixtures("stranger")
def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could replace the log and the state, and would read what the job writes; also that of `.grete`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".grete" / "job").mkdir(parents=True)
    for place in (Path(".grete/job"), tmp_path / ".grete" / "new"):
        with pytest.raises(ConfigError, match=rf"belongs to user {STRANGER}, and this process is user {os.geteuid()}"):
            JobDirectory(place)


def test_a_directory_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    """The error says what to do about it; a directory with the sticky bit keeps files of others apart."""
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="can be changed by every user of this machine: chmod o-w"):
        make_private(tmp_path)
    tmp_path.chmod(0o1777)
    make_private(tmp_path)


@pytest.mark.usefixtures("stranger")
def test_settings_of_another_user_are_not_found_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in the current folder says which log is written to, and with which options; named, it is taken."""
    monkeypatch.chdir(tmp_path)
    Path("grete.toml").write_text("restarts_max = 3\n")
    with pytest.raises(ConfigError, match=r"its owner could .*: name it by --settings grete\.toml"):
        settings_of(None, None)
    assert settings_of(None, Path("grete.toml")).restarts_max == 3


@pytest.mark.parametrize("name", ["plugin.library.paths", "producer.ssl.engine.location", "sasl.kerberos.kinit.cmd"])
def test_options_that_run_code_are_taken_from_an_own_file_only(name: str, tmp_path: Path) -> None:
    """A file that everybody may write would let everybody run code as this user."""
    path = tmp_path / "options"
    path.write_text(f"{name} = /there\n")
    assert read_options(path) == {name: "/there"}
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=f"chmod o-w .*leave {name} out, which runs code"):
        read_options(path)
    path.write_text("client.id = here\n")
    assert read_options(path) == {"client.id": "here"}


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    """The target of the link is neither emptied nor written."""
    kept = tmp_path / "kept"
    kept.write_text("mine")
    (tmp_path / "supervisor.lock").symlink_to(kept)
    with pytest.raises(ConfigError, match=r"cannot open .*supervisor.lock"):
        JobDirectory(tmp_path).lock_supervisor()
    with pytest.raises(OSError, match="symbolic link"):
        open_lock(tmp_path / "supervisor.lock")
    assert kept.read_text() == "mine"


def test_roots_files_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container mounts them: also a folder that everybody in there may write."""
    monkeypatch.setattr(trusted, "_ROOT", os.geteuid())
    monkeypatch.setattr("os.geteuid", lambda: STRANGER)
    tmp_path.chmod(0o777)
    trusted.require_own(tmp_path, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint_interval_ms", 1 << 31),
        ("shutdown_timeout_ms", 10**18),
        ("changelog_retention_ms", 1 << 62),
        ("frame_bytes_max", 1 << 31),
        ("early_bytes_max", 1 << 60),
        ("traced_per_million", 1_000_001),
        ("standby_replicas", 10_000),
        ("restarts_max", 1 << 40),
    ],
)
def test_settings_have_upper_bounds(name: str, value: int) -> None:
    """Above them a wait of the system, a client or a format fails in the middle of the work."""
    with pytest.raises(ConfigError, match=f"setting {name} = {value}: must be .* or less"):
        Settings(**{name: value})  # type: ignore[arg-type]  # the name is one of an integer


def test_a_password_in_a_url_is_not_shown() -> None:
    """A folder of snapshots may have one in its url."""
    assert without_password("ftp://bank:canary" + "@host/path, s3://bucket") == "ftp://…@host/path, s3://bucket"


def test_a_password_is_in_no_log_and_in_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker gets it, and looks for a snapshot that it cannot have; settings and incidents are shown without it."""
    monkeypatch.setenv("GRETE_SNAPSHOT_URL", "ftp://bank:canary" + "@127.0.0.1:1/snapshots")
    said = grete("run", "tasks.word_count", "--input", "sentences=-", cwd=tmp_path, stdin="to be\n")
    shutil.rmtree(tmp_path / ".grete" / "word-count" / "state")
    said += grete("run", "tasks.word_count", cwd=tmp_path)
    said += grete("config", cwd=tmp_path) + grete("config", "--json", cwd=tmp_path)
    grete("incident", "tasks.word_count", "-o", "packed.zip", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "packed.zip") as packed:
        said += packed.read("manifest.json").decode()
    log = (tmp_path / ".grete" / "word-count" / "logs" / "worker-0.log").read_text()
    assert "snapshot cannot be used" in log
    assert "canary" not in said + log


@pytest.mark.usefixtures("started_by_exec")  # its command line
def test_a_workers_command_line_names_it_and_no_secret(tmp_path: Path) -> None:
    """Every user of the machine sees it."""
    directory = JobDirectory(tmp_path / "job")
    spec = spec_in(directory, "tasks.missing", Settings(snapshot_url="ftp://bank:canary" + "@host/x"))
    started = ProcessPool().start(replace(spec, partitions=(0,), output=str(tmp_path / "worker.log")))
    shown = started.process.args
    assert started.process.wait(60) == 4
    assert started.process.stdin is not None
    started.process.stdin.close()
    os.close(started.pipe)
    assert str(shown).endswith("'grete.worker.life.process_main', 'tasks.missing', '0']")
    assert "no module 'tasks.missing'" in (tmp_path / "worker.log").read_text()


def test_nothing_that_is_shown_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes, the controls of C1, marks of direction: in texts, in JSON and in rows that are JSON themselves."""
    evil = "\x1b[2J\x9b2J\x7f\u202egnp.exe\u2066"
    print_json({"key": evil, "e": "\U000e0001"})
    shown = capsys.readouterr().out.strip()
    for text in (shown, printable(evil), to_text(evil), to_text({"a": evil})):
        assert text.isprintable(), text
    assert '\\u001b[2J\\u009b2J\\u007f\\u202egnp.exe\\u2066", "e": "\\udb40\\udc01"' in shown


def test_what_is_written_for_others_is_not_for_everybody(tmp_path: Path) -> None:
    """Files of a snapshot hold the state of a job: who is not in its user's group does not read them."""
    from grete.stores.snapshot_folder import _for_the_group, _make_shared

    _make_shared(tmp_path / "a" / "b")
    with _for_the_group(tmp_path / "a" / "b" / "c") as file:
        file.write(b"state")
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o007
