"""The process that owns a broker which was started for tests.

``python -m grete.testing.broker.daemon DIR [keep] [loaded]``

Users hold a shared lock on a file, which the kernel takes from them when they end, however they end. When the daemon
can have it for itself, no user is left: it ends the broker and itself.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from grete.errors import FrameworkError
from grete.testing.broker.docker import docker_broker
from grete.testing.broker.find import KEEP, LOADED, READY, USERS
from grete.testing.broker.jars import jar_broker

LOOK_S = 0.25  # between two looks whether the users are gone


def main(directory: Path, *, keep: bool, loaded: bool) -> int:
    """Start a broker, say where it is, and keep it while a process uses it. 1 if none could be started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for kind in (docker_broker, partial(jar_broker, loaded=loaded)):
        try:
            with kind(directory, keep=keep) as (bootstrap, how):
                _keep(directory, bootstrap, how)
                return 0
        except FrameworkError as error:
            print(f"- {error}", flush=True)  # noqa: T201 - its log
    return 1


@contextlib.contextmanager
def _said(ready: Path, bootstrap: str, how: str) -> Iterator[None]:
    draft = ready.with_suffix(".new")
    draft.write_text(json.dumps({"bootstrap": bootstrap, "how": how}))
    draft.rename(ready)
    try:
        yield
    finally:
        ready.unlink(missing_ok=True)


def _keep(directory: Path, bootstrap: str, how: str) -> None:
    """Return, with the lock, once no process uses the broker any more."""
    users = os.open(directory / USERS, os.O_RDWR | os.O_CREAT, 0o600)
    with _said(directory / READY, bootstrap, how):
        while True:
            time.sleep(LOOK_S)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return


if __name__ == "__main__":
    place = Path(sys.argv[1])
    kept = KEEP in sys.argv[2:]
    code = main(place, keep=kept, loaded=LOADED in sys.argv[2:])
    if code == 0 and not kept:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(code)
