"""The file of an incident: what is damaged, hostile or newer is refused; it is written as a whole or not at all."""

import hashlib
import os
import signal
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grete.errors import ConfigError
from grete.replay.incident.file import FORMAT, MANIFEST, IncidentFile, digest_of, write
from tests.cli.changed_incident import IncidentChanged
from tests.cli.test_incident import Home, halted, packed
from tests.cli.test_main import grete

__all__ = ["halted", "packed"]  # fixtures

BOMB_BYTES = 1 << 26


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


def test_show_unpacks_nothing_but_the_manifest(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A part that is wrong, or has no end, costs a look at the manifest nothing; the run refuses it."""
    with IncidentChanged(packed, tmp_path / "changed.zip") as changed:
        changed.parts = {name: bytes(len(data)) for name, data in changed.parts.items()}
    assert grete(monkeypatch, "incident", "show", str(tmp_path / "changed.zip")) == 0
    assert "task" in capfd.readouterr().out
    assert grete(monkeypatch, "incident", "run", str(tmp_path / "changed.zip")) == 2
    assert "has another digest" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (zipfile.ZIP_DEFLATED, "Bad CRC-32"),
        (zipfile.ZIP_BZIP2, "compressed in another way"),
        (zipfile.ZIP_LZMA, "compressed in another way"),
    ],
)
def test_a_manifest_that_unpacks_to_more_than_it_says_fills_no_memory(tmp_path: Path, method: int, says: str) -> None:
    """A few KB that unpack to 64 MB are read up to the size that the archive claims, and refused."""
    path, claimed = tmp_path / "bomb.zip", struct.pack("<L", 1_000)
    with zipfile.ZipFile(path, "w", method) as bomb:
        bomb.writestr(MANIFEST, bytes(BOMB_BYTES))
    path.write_bytes(path.read_bytes().replace(struct.pack("<L", BOMB_BYTES), claimed))
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=says):
            IncidentFile(path)
        assert tracemalloc.get_traced_memory()[1] < BOMB_BYTES / 4
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda manifest: manifest["versions"].clear(), "what it says cannot be done"),
        (lambda manifest: manifest["at"].update(stores={"s": ["x", 1]}), "says something else than it should"),
        (lambda manifest: manifest.update(digests={"a": [-1, ""]}), "its parts are not those"),
        (lambda manifest: manifest.update(task=7), "says something else than it should"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(
    packed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], None],
    says: str,
) -> None:
    """`show` says what is wrong, and what to do, in a line."""
    with IncidentChanged(packed, tmp_path / "changed.zip") as changed:
        change(changed.manifest)
    assert grete(monkeypatch, "incident", "show", str(tmp_path / "changed.zip")) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert says in line
    assert "copy it again" in line


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
