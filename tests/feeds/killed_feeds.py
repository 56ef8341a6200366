"""Feeds a file's lines or a folder, in processes that die by SIGKILL, each one a step later than the one before it.

``python -m tests.feeds.killed_feeds KIND SOURCE LOG PATH TOPIC``: it forks before a log is open, and prints how many
processes were killed. KIND is "lines" or "folder", LOG "embedded" or the url of a broker, PATH the embedded log's file.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from grete import Topic, utf8
from grete.feeds import lines as feeding
from grete.feeds.folder import FolderFeed
from grete.feeds.line_forms import LineForm
from grete.feeds.lines import feed_lines
from grete.logs.address import open_log
from grete.logs.kafka.write.job_metadata import KafkaJobMetadata
from grete.ports import ExternalRecord, JobMetadata

JOB = "killed"


class Dying:
    """Kills this process at the step that is the number ``at``, counted from 0."""

    def __init__(self, at: int) -> None:
        self._left = at

    def step(self) -> None:
        """One step more."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a step before and behind it."""

        def call(*arguments: Any, **more: Any) -> Any:
            self.step()
            result = function(*arguments, **more)
            self.step()
            return result

        return call


def fed_by(log: JobMetadata, dying: Dying) -> JobMetadata:
    """Return the metadata whose user dies at each step: before a write, when it is handed over, when it is done."""
    changing: Any = log
    if isinstance(log, KafkaJobMetadata):
        changing._produce = dying.around(changing._produce)
        changing._writing.produce = dying.around(changing._writing.produce)
        return log

    class Split:
        """Writes in one transaction, as the embedded log does."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def produce_with_meta(
            self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
        ) -> int:
            offset: int = dying.around(log.produce_with_meta)(records, meta, sync=sync)
            return offset

    return Split()


def feed(kind: str, source: Path, url: str, path: Path, topic: str, at: int) -> None:
    """Feed all; the process dies at step ``at``, if there are as many."""
    with contextlib.closing(open_log(url, path)) as log:
        log.create_topic(topic, 2, plain=True)
        metadata = fed_by(log.open_metadata(JOB), Dying(at))
        if kind == "lines":
            handle = os.open(source, os.O_RDONLY)
            for _ in feed_lines(
                metadata, Topic(topic, key=utf8, value=utf8), handle, form=LineForm.KEYS, path=str(source)
            ):
                pass
        else:
            folder = FolderFeed(metadata, topic, source)
            folder.batch_files_max = 2
            for _ in folder.scan():
                pass


def main(kind: str, source: str, url: str, path: str, topic: str) -> int:
    """Return the number of processes that were killed until one came to its end."""
    feeding.READ_BYTES = 32  # some batches of a small file
    for at in count():
        child = os.fork()
        if not child:
            feed(kind, Path(source), url, Path(path), topic, at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            assert status == 0
            return at
    raise AssertionError


if __name__ == "__main__":
    sys.stdout.write(f"{main(*sys.argv[1:])}\n")
