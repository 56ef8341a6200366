"""Programs of Debian's packages for tests: fetched with ``apt-get`` into the cache, without root."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grete.errors import ConfigError

FETCH_S_MAX, CALL_S_MAX = 280.0, 60.0


def cache(name: str) -> Path:
    """Return the folder in which a package and what it needs are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grete" / name


def unpack(package: str, packages: Path, root: Path) -> None:
    """Unpack a package and what it needs below ``root``; fetch them the first time. Raises ConfigError."""
    packages.mkdir(parents=True, exist_ok=True)
    with (packages / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests want it, too
        if not list(packages.glob("*.deb")):
            _fetch(package, packages)
    for each in sorted(packages.glob("*.deb")):
        call(["dpkg", "-x", str(each), str(root)], CALL_S_MAX)


def _fetch(package: str, packages: Path) -> None:
    if shutil.which("apt-get") is None:
        raise ConfigError(f"{package} is not on this machine, and there is no apt-get to fetch it")
    (packages / "partial").mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::Cache::archives={packages}", "-oDebug::NoLocking=1", "-oAPT::Sandbox::User=root"]
    fetch = ["apt-get", "install", "--download-only", "--no-install-recommends", "--yes", *options, package]
    try:
        call(fetch, FETCH_S_MAX)
    except ConfigError:
        if os.geteuid() != 0:
            raise
        call(["apt-get", "update"], FETCH_S_MAX)  # a fresh machine does not know its packages
        call(fetch, FETCH_S_MAX)


def call(command: Sequence[str], seconds: float, **options: Any) -> None:
    """Run a program to its end. Raises ConfigError with what it said."""
    with tempfile.TemporaryFile("w+") as output:  # not a pipe: a server that it leaves would hold its end open
        try:
            subprocess.run(  # programs and arguments are ours
                command, check=True, timeout=seconds, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options
            )
        except (subprocess.SubprocessError, OSError) as error:
            output.seek(0)
            raise ConfigError(f"{Path(command[0]).name}: {error}: {output.read().strip()[-1_000:]}") from error
