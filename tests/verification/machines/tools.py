"""The programs that make networks, ``ip``, ``tc`` and ``nft``: this machine's own, or those of Debian's packages."""

import os
import shutil
import subprocess
from pathlib import Path

from grete.errors import ConfigError
from tests.support.debian import cache, unpack

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
PLACES = "/usr/local/sbin:/usr/sbin:/sbin"  # of programs for root, beside PATH
CALL_S_MAX = 30.0


class NoNetwork(ConfigError):
    """No network can be made here; the text says what was tried and what would help."""


class Tools:
    """Calls the programs."""

    def __init__(self, root: Path) -> None:
        """Find them; ``root`` is where packages are unpacked if this machine lacks one. Raises NoNetwork."""
        self._root = root
        self.ip, self.tc, self.nft = (self._path(name) for name in PACKAGES)

    def _path(self, name: str) -> str:
        found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), PLACES]))
        if found is not None:
            return found
        package = PACKAGES[name]
        try:
            unpack(package, cache(package), self._root)
        except ConfigError as error:
            raise NoNetwork(f"no {name}: {error}: install Debian's package {package}") from error
        unpacked = next(
            (path for place in ("usr/sbin", "sbin", "bin") for path in self._root.glob(f"{place}/{name}")), None
        )
        if unpacked is None:
            raise NoNetwork(f"Debian's package {package} in {cache(package)} holds no {name}: delete it")
        return str(unpacked)

    def call(self, *command: str, stdin: str | None = None) -> str:
        """Run a program to its end; return what it printed. Raises NoNetwork with what it said."""
        libraries = ":".join(
            str(path) for place in ("usr/lib", "lib") for path in self._root.glob(f"{place}/*-linux-*")
        )
        environment = os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {})
        done = subprocess.run(
            command, input=stdin or "", text=True, capture_output=True, check=False, timeout=CALL_S_MAX, env=environment
        )
        if done.returncode:
            raise NoNetwork(
                f"{Path(command[0]).name} {' '.join(command[1:])}: {done.stderr.strip()[-1_000:]}: machines need root, "
                "and a kernel with network namespaces, bridges and nftables"
            )
        return done.stdout
