"""Finds a broker, or starts one that ends when the last process that uses it has ended, however it ended."""

import atexit
import contextlib
import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from grete import python_start
from grete.closable import Closable
from grete.errors import ConfigError

ADDRESS = "GRETE_KAFKA"
READY_S_MAX = 300.0  # the first time, jars or an image are fetched
READY, USERS, STARTING, LOG = "ready.json", "users.lock", "starting.lock", "daemon.log"
KEEP, LOADED = "keep", "loaded"


class NoBroker(ConfigError):
    """No Kafka broker can be had here; the text says what was tried and what would help."""


class Broker(Closable):
    """A broker in use. ``how`` it was found is for people."""

    def __init__(self, bootstrap: str, how: str, handle: int | None = None) -> None:
        """``handle``: an open lock that says that we use it."""
        self.bootstrap, self.how = bootstrap, how
        self._handle = handle

    def close(self) -> None:
        """Say that we no longer use it: the last one out ends it, if it was started for us."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def find_broker(directory: Path | None = None, *, keep: bool = False, loaded: bool = False) -> Broker:
    """Return a broker; processes that name the same ``directory`` share one. Raises NoBroker.

    ``keep``: its data stays there when it ends, and the next one goes on with it. ``loaded``: for benchmarks: a broker
    from jars takes longer to start, and then more load.
    """
    address = os.environ.get(ADDRESS)
    if address:
        return Broker(address, f"{ADDRESS}={address}")
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix="grete-kafka-"))
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / STARTING):
        users = os.open(directory / USERS, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(users, fcntl.LOCK_SH)  # waits while a daemon without users is ending its broker
            ready = directory / READY
            daemon = None if ready.exists() else _start_daemon(directory, *[KEEP] * keep, *[LOADED] * loaded)
            found = _wait_for(ready, daemon, directory / LOG)
        except BaseException:
            os.close(users)
            raise
    return Broker(found["bootstrap"], found["how"], users)


def _start_daemon(directory: Path, *options: str) -> "subprocess.Popen[bytes]":
    """Start the process that owns the broker: in a session of its own, so that Ctrl-C ends its users first."""
    with (directory / LOG).open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own module
            python_start.python("grete.testing.broker.daemon", str(directory.absolute()), *options),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=python_start.environment_with_path(),
        )


def _wait_for(ready: Path, daemon: "subprocess.Popen[bytes] | None", log: Path) -> dict[str, str]:
    deadline = time.monotonic() + READY_S_MAX
    while not ready.exists():
        ended = daemon is not None and daemon.poll() is not None
        if ended or time.monotonic() > deadline:
            text = log.read_text(errors="replace").strip()
            raise NoBroker(
                f"no Kafka broker can be had: set {ADDRESS}=host:port, or start Docker and install testcontainers, or "
                f"install Maven. Tried:\n{text}"
            )
        time.sleep(0.05)
    found: dict[str, str] = json.loads(ready.read_text())
    if daemon is not None:
        _kept.append(daemon)
    return found


_kept: list["subprocess.Popen[bytes]"] = []  # a Popen that is collected while its process runs warns; ours outlives us


@atexit.register
def _outlived() -> None:
    """Let the interpreter drop at its end, without that warning, what runs until its last user has ended."""
    for daemon in _kept:
        daemon.returncode = daemon.poll() or 0


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
