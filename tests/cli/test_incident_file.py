"""The file of an incident: what is damaged, hostile or newer is refused; it is written as a whole or not at all."""

import hashlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.errors import ConfigError
from grete.replay.incident.file import FORMAT, IncidentFile, digest_of, write
from tests.cli.changed_incident import IncidentChanged
from tests.cli.test_incident import Home, halted, packed

__all__ = ["halted", "packed"]  # fixtures


def _slip(changed: IncidentChanged) -> None:
    changed.parts["../slipped"] = b"x"
    changed.manifest["digests"]["../slipped"] = digest_of(b"x")


def _slip_code(changed: IncidentChanged) -> None:
    changed.manifest["code"]["files"]["../../slipped.py"] = "code/0"


def _other_bytes(changed: IncidentChanged) -> None:
    changed.parts["state"] = changed.parts["state"][:-1] + b"!"


def _longer(changed: IncidentChanged) -> None:
    changed.parts["state"] += b"!"


def _newer(changed: IncidentChanged) -> None:
    changed.manifest = {"format": FORMAT + 1}


def _unnamed(changed: IncidentChanged) -> None:
    changed.parts["more"] = b""


def _huge(changed: IncidentChanged) -> None:
    changed.manifest["digests"]["state"][0] = 1 << 40


def _no_commit(changed: IncidentChanged) -> None:
    changed.parts["state-commit"] = b"foreign"
    changed.manifest["digests"]["state-commit"] = digest_of(b"foreign")


def _other_settings(changed: IncidentChanged) -> None:
    changed.manifest["settings"]["checkpoint_interval_ms"] = "x"


def _no_rows(changed: IncidentChanged) -> None:
    changed.empty("state")
    changed.parts["input-0"] = b"\xc1"
    changed.manifest["digests"]["input-0"] = digest_of(b"\xc1")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_slip, "a part '../slipped', which is no plain path"),
        (_slip_code, "code for '../../slipped.py', which is outside of its folder"),
        (_other_bytes, "its part state has another digest"),
        (_no_commit, "what it says cannot be done: DecodeError: "),
        (_other_settings, "what it says cannot be done: ValidationError: "),
        (_longer, "its part state has"),
        (_newer, "has format 2, and this release of Grete reads up to 1: upgrade Grete"),
        (_unnamed, "not those that its manifest names: more"),
        (_huge, "more than 4 GiB"),
        (_no_rows, "input-0 cannot be read"),
    ],
)
def test_a_hostile_file_is_refused(
    halted: Home, packed: Path, tmp_path: Path, change: Callable[[IncidentChanged], None], says: str
) -> None:
    """Nothing is written outside, nothing is run, and the error says what is wrong."""
    with IncidentChanged(packed, tmp_path / "in" / ".." / "changed.zip") as changed:
        (tmp_path / "in").mkdir()
        change(changed)
    code, out = halted.run(str(tmp_path / "changed.zip"))
    assert (code, says in out) == (2, True), out
    assert "Traceback" not in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["changed.zip", "in"]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no zip at all"])
def test_what_is_no_incident_is_refused(content: bytes, tmp_path: Path) -> None:
    """A file that was cut, or is something else."""
    path = tmp_path / "some.zip"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not the whole file of an incident"):
        IncidentFile(path)
    with pytest.raises(ConfigError, match="no file"):
        IncidentFile(tmp_path / "none.zip")


def test_a_file_is_written_as_a_whole_or_not_at_all(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves nothing; a kill leaves nothing under the name of the file."""
    whole = IncidentFile(packed)
    parts = {name: whole.part(name) for name in whole.manifest.digests}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(ConfigError, match="No space left on device: name another file"):
            write(tmp_path / "a.zip", whole.manifest, parts)
    assert not list(tmp_path.iterdir())
    child = os.fork()
    if child == 0:
        monkeypatch.setattr("os.fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        write(tmp_path / "a.zip", whole.manifest, parts)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not (tmp_path / "a.zip").exists()
    write(tmp_path / "a.zip", whole.manifest, parts)
    assert hashlib.sha256(IncidentFile(tmp_path / "a.zip").part("state").strip()).digest()
