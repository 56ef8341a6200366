"""Unpacks the archives of files that earlier releases wrote."""

import tarfile
from collections.abc import Callable
from pathlib import Path


def unpack(archive: Path, folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> None:
    """Unpack those members of an archive whose names are ``wanted``."""
    with tarfile.open(archive) as packed:
        members = [each for each in packed if wanted(each.name)]
        if hasattr(tarfile, "data_filter"):
            packed.extractall(folder, members, filter="data")
        else:  # Python 3.11.0 to 3.11.3; the archives are ours
            packed.extractall(folder, members)
