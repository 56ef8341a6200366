"""The manifest of an export: what counts. It is replaced as a whole, so that readers see one checkpoint or the next."""

import os
from pathlib import Path
from typing import Any

import msgspec

from grete.errors import ConfigError

NAME = "manifest.json"


class ExportFile(msgspec.Struct, frozen=True):
    """``kind``: full, all entries at a checkpoint, or changes, in the order in which they are to be applied."""

    path: str  # below the export's directory
    kind: str
    partition: int
    checkpoint_id: int
    rows: int
    sha256: str


class ExportStore(msgspec.Struct, frozen=True):
    """The files of one store, in the order in which they count; ``position``: where its changes go on."""

    stage: str
    store: str
    columns: dict[str, str]
    position: dict[str, Any]
    files: tuple[ExportFile, ...]


class ExportManifest(msgspec.Struct, frozen=True):
    """One checkpoint of a job."""

    format: int
    job: str
    checkpoint_id: int
    stores: tuple[ExportStore, ...]


def read_manifest(directory: Path) -> ExportManifest | None:
    """Return the manifest of a directory, None if it is empty. Raises ConfigError: no export, or of a newer build."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(data, type=ExportManifest)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{directory / NAME} is no manifest of an export: {error}: name another directory") from error
    if found.format != 1:
        raise ConfigError(f"{directory / NAME}: format {found.format}, this build reads 1: upgrade before reading")
    return found


def write_manifest(directory: Path, manifest: ExportManifest) -> None:
    """Put a manifest in the place of the one before, on disk; all of its files are there, on disk, too."""
    draft = directory / f"{NAME}.tmp"
    with draft.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / NAME)
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
