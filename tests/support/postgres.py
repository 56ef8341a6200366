"""A PostgreSQL server for tests, wherever one can be had: real, empty, ended with the process that asked for it.

    >>> with find_postgres() as server:            # doctest: +SKIP
    ...     psycopg.connect(server.database())

It looks for: a url in the environment (GRETE_POSTGRES, of a role that may create databases); binaries on this machine;
Debian's packages, fetched with ``apt-get`` into the cache, without root and without installing anything.
"""

import contextlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from grete.errors import ConfigError
from tests.support.debian import CALL_S_MAX, cache, call, unpack

URL = "GRETE_POSTGRES"
_INSTALLED = Path("/usr/lib/postgresql")
_OTHERS = Path("/usr/local/bin"), Path("/usr/bin")
_USER = "nobody"  # initdb refuses to work for root
# Durable enough for a kill of the server; a power loss is not tested with it.
_SERVER = "-c listen_addresses= -c fsync=off -c full_page_writes=off -c max_connections=50 -c shared_buffers=16MB"


class NoPostgres(ConfigError):
    """No PostgreSQL can be had here; the text says what was tried and what would help."""


class Postgres:
    """A server in use. ``how`` it was found is for people; ``own`` says whether ``stop`` and ``start`` may be used."""

    def __init__(self, url: str, how: str, daemon: "subprocess.Popen[str] | None" = None) -> None:
        """``daemon``: the process that owns the server, and ends it when its input does."""
        self.url, self.how, self.own = url, how, daemon is not None
        self._daemon = daemon
        self._databases = 0

    def database(self) -> str:
        """Create an empty database; return its url."""
        import psycopg

        self._databases += 1
        name = f"grete_{os.getpid()}_{os.urandom(4).hex()}_{self._databases}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def stop(self) -> None:
        """End the server at once, as a crash would: its clients lose their connections."""
        self._tell("stop")

    def start(self) -> None:
        """Start it again, with its data."""
        self._tell("start")

    def close(self) -> None:
        """End it for good, if it was started for us."""
        if self._daemon is not None:
            daemon, self._daemon = self._daemon, None
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            daemon.stdin.close()
            daemon.wait(CALL_S_MAX)
            daemon.stdout.close()

    def _tell(self, command: str) -> None:
        assert self._daemon is not None, f"{self.how}: is not ours to {command}"
        assert self._daemon.stdin is not None
        self._daemon.stdin.write(command + "\n")
        self._daemon.stdin.flush()
        answer(self._daemon)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_postgres() -> Postgres:
    """Return a server. Raises NoPostgres."""
    url = os.environ.get(URL)
    if url:
        return Postgres(url, f"{URL} in the environment")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C ends its user first
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    found = answer(daemon)
    return Postgres(found["url"], found["how"], daemon)


def answer(daemon: "subprocess.Popen[str]") -> dict[str, Any]:
    """Return the daemon's next answer. Raises NoPostgres if that is an error."""
    assert daemon.stdout is not None
    line = daemon.stdout.readline()
    said: dict[str, Any] = json.loads(line) if line else {"error": "its daemon has ended"}
    if "error" in said:
        assert daemon.stdin is not None
        daemon.stdin.close()
        daemon.stdout.close()
        daemon.wait(CALL_S_MAX)
        raise NoPostgres(
            f"no PostgreSQL: {said['error']}: install Debian's package postgresql, or set {URL}=postgresql://…"
        )
    return said


# --- The daemon ---


class _Server:
    """A server below ``directory``, with a socket there and no port."""

    def __init__(self, binaries: Path, libraries: str, directory: Path) -> None:
        self._binaries, self._directory = binaries, directory
        self._environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "LD_LIBRARY_PATH": libraries}
        self.url = f"postgresql://postgres@/postgres?host={directory}"
        self._run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")

    def start(self) -> None:
        """Start, and wait until it answers."""
        log = self._directory / "server.log"
        self._run("pg_ctl", "start", "--wait", f"--log={log}", f"--options=-k {self._directory} {_SERVER}")

    def stop(self) -> None:
        """End all of its processes at once."""
        self._run("pg_ctl", "stop", "--mode=immediate")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), f"--pgdata={self._directory / 'data'}", *arguments]
        call(command, CALL_S_MAX, env=self._environment, cwd="/", **_identity())


def _identity() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": _USER, "group": pwd.getpwnam(_USER).pw_gid, "extra_groups": []}


def installed() -> Path | None:
    """Return the directory of the newest server on this machine."""
    versions = [path for path in _INSTALLED.glob("*/bin") if path.parent.name.isdecimal()]
    newest = sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    candidates = [*newest, *_OTHERS]
    return next(
        (path for path in candidates if all((path / name).exists() for name in ("initdb", "pg_ctl", "postgres"))), None
    )


def fetched(packages: Path, root: Path) -> tuple[Path, str]:
    """Unpack Debian's packages, fetched the first time, below ``root``; return (programs' directory, library path)."""
    unpack("postgresql", packages, root)
    programs = next(root.glob("usr/lib/postgresql/*/bin"), None)
    if programs is None:
        raise ConfigError(f"Debian's packages in {packages} hold no server: delete them")
    return programs, ":".join(str(path) for path in root.glob("usr/lib/*-linux-*"))


def keep(directory: Path) -> None:
    """Start a server, then do as the lines of standard input say, until they end."""
    packages = cache("postgresql")
    programs, libraries = installed(), ""
    how = f"installed, {programs}"
    if programs is None:
        programs, libraries = fetched(packages, directory / "root")
        how = f"Debian's packages in {packages}"
    if os.geteuid() == 0:
        shutil.chown(directory, _USER)
    server = _Server(programs, libraries, directory)
    server.start()
    with contextlib.ExitStack() as up:
        up.callback(server.stop)
        print(json.dumps({"url": server.url, "how": how}), flush=True)  # noqa: T201  # to who asked
        for line in sys.stdin:
            if line.strip() == "stop":
                up.pop_all().close()
            else:
                server.start()
                up.callback(server.stop)
            print("{}", flush=True)  # noqa: T201  # likewise


def main() -> None:
    """Be the daemon: ``python -m tests.support.postgres``."""
    directory = Path(tempfile.mkdtemp(prefix="grete-postgres-"))
    try:
        keep(directory)
    except ConfigError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201  # to who asked
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
