"""The files of a job's code: its module, and what that has imported from beside it."""

import hashlib
import os
import site
import sys
import sysconfig
from pathlib import Path

from grete.api.jobs.job import Job
from grete.errors import ConfigError
from grete.execution.records.user_traceback import in_grete

FILES_MAX = 1_000  # modules: a job that has more imports a library that lies beside it
BYTES_MAX = 16 << 20  # likewise
_PATHS = "stdlib", "platstdlib", "purelib", "platlib"
_LIBRARIES = [*site.getsitepackages(), site.getusersitepackages(), *map(sysconfig.get_paths().__getitem__, _PATHS)]


def code_of(job: Job, reference: str) -> tuple[str, dict[str, bytes]]:
    """Return the loader of a job that was loaded from ``reference``, and its files: path from their folder → bytes.

    They are the module's and those of all modules below the same folder that are imported now; libraries are not.
    Raises ConfigError: they are too many, or too large.
    """
    is_file = reference.endswith(".py")
    root = Path(reference).resolve().parent if is_file else _root_of(reference)
    files: dict[str, bytes] = {}
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        if origin is None or not origin.endswith(".py") or in_grete(origin) or _in_library(origin):
            continue
        path = Path(origin).resolve()
        if path.is_relative_to(root) and path.is_file():
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    size = sum(map(len, files.values()))
    if len(files) > FILES_MAX or size > BYTES_MAX:
        raise ConfigError(
            f"the code of job {job.name!r} below {root} has {len(files):,} modules and {size:,} bytes, over "
            f"{FILES_MAX:,} and {BYTES_MAX:,}: leave it out with --no-code, and give it to `run` with --job"
        )
    return Path(reference).name if is_file else reference, files


def fingerprint_of(files: dict[str, bytes]) -> str:
    """Return a digest of all files with their names."""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _root_of(module: str) -> Path:
    """Return the folder from which a module of this name is imported."""
    path = Path(str(sys.modules[module].__file__)).resolve()
    ups = len(module.split(".")) - (path.name != "__init__.py")
    return path.parents[ups]


def _in_library(path: str) -> bool:
    return any(path.startswith(f"{folder}{os.sep}") for folder in _LIBRARIES)
