"""A process that writes to an embedded log, for tests: python -m tests.logs.appender MODE PATH NAME COUNT BATCH.

stream: after a line on stdin, append NAME:0, NAME:1, … to shared[0], BATCH at a time; print each last offset.
answer: append one message for each line on stdin.
next: append BATCH messages in one poll, without being asked; print the last offset.
hang: append BATCH messages, print a line and stay inside of the transaction until killed.
"""

import sys
import threading
from pathlib import Path

from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition

SHARED = TopicPartition("shared", 0)


def tell(line: str) -> None:
    """Report to the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(mode: str, path: str, name: str, count: str, batch: str) -> None:
    """Open the log, say so, and do what the mode says."""
    log = EmbeddedLog(Path(path))
    log.create_topic("shared", 1)
    tell("ready")
    if mode == "hang":
        hang(log, name, int(batch))
    if mode == "next":
        for each in range(int(batch)):
            log.send(0, each, SHARED, f"{name}:{each}".encode())
        tell(str(log.poll()[-1].offset))
    for number, _ in enumerate(sys.stdin):
        numbers = range(int(count)) if mode == "stream" else range(number, number + 1)
        for start in range(0, len(numbers), int(batch)):
            for each in numbers[start : start + int(batch)]:
                log.send(0, each, SHARED, f"{name}:{each}".encode())
            tell(str(log.poll()[-1].offset))
        if mode == "stream":
            break
    log.close()


def hang(log: EmbeddedLog, name: str, batch: int) -> None:
    """Write without a commit, and wait to be killed."""
    for each in range(batch):
        log.send(0, each, SHARED, f"{name}:{each}".encode())
    with log._transaction(sync=False):
        log._append_all(log._queue)
        tell("inside")
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
