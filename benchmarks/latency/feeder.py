"""Writes documents at a steady rate: ``… -m benchmarks.latency.feeder LOG TOPIC PARTITIONS DOCUMENTS RESULT RATE``.

It says "ready" on its standard output, sends a document to each partition when a line comes in, and the others after
the next line. It writes to the file RESULT when it sent each document: a JSON list of the monotonic clock in s, which
all processes of a machine share.
"""

import gc
import json
import random
import sys
import time
from pathlib import Path

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.ends import sender


def main(log: str, topic: str, partitions: int, count: int, result: Path, rate: float) -> None:
    """Send ``count`` documents, one after the other over the partitions."""
    texts = [text.encode() for text in paragraphs()]
    to = sender(log, topic)
    gc.disable()
    print("ready", flush=True)
    sys.stdin.readline()
    sent = []
    jitter = random.Random(3).random  # else documents and checkpoints keep the same step: 5 phases at 100 ms
    start = time.monotonic()
    for number in range(count):
        if number == partitions:
            sys.stdin.readline()
            start = time.monotonic() - number / rate
        time.sleep(max(0.0, start + (number + jitter()) / rate - time.monotonic()))
        sent.append(time.monotonic())
        to.send(number % partitions, b"%d" % number, texts[number % len(texts)])
    to.flush()
    result.write_text(json.dumps(sent))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]), float(sys.argv[6]))
