"""Starts a job up to where its workers would begin, and stops between what it has read and what it pins: a script.

pinning_host.py CODE DIRECTORY LOG: prints "read", waits for a line, and prints "pinned" or the error that it ends with.
"""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from grete.errors import FrameworkError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.pins import pinning
from grete.state.pins.pinning import know_dropped
from grete.state.pins.prepare import prepare


def stopping(noting: Callable[..., bytes]) -> Callable[..., bytes]:
    """Return the function that is called once it is decided to pin; it waits before."""

    def noted(*arguments: Any) -> bytes:
        print("read", flush=True)  # noqa: T201  # who started it reads it
        sys.stdin.readline()
        return noting(*arguments)

    return noted


def main(code: str, directory: str, log_address: str) -> None:
    """Start the job."""
    pinning.note_before = stopping(pinning.note_before)  # type: ignore[attr-defined]  # it imports the name
    job, job_directory = load_job(code), JobDirectory(Path(directory), address=LogAddress(log_address))
    with closing(job_directory.open_log()) as log:
        try:
            know_dropped(job, log)
            prepare(job, log, job_directory, Settings())
        except FrameworkError as error:
            print(type(error).__name__, error, flush=True)  # noqa: T201  # who started it reads it
        else:
            print("pinned", flush=True)  # noqa: T201  # who started it reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
