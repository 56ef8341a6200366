"""Reads the index as any consumer: ``… -m benchmarks.latency.reader LOG TOPIC PARTITIONS DOCUMENTS RESULT ALLOWED``.

It works out by itself which records must come, and ends when all have; it fails if one is missing, wrong, or there
twice. ALLOWED: "once"; "repeats": a record may be there twice; "losses": it may be missing. On its standard output it
says "ready", and "begun" when the first document of each partition is complete. It writes one JSON object to RESULT:
when it saw the last record of each document, and the first one in each partition; the monotonic clock in s.
"""

import gc
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec

from benchmarks.latency.articles import paragraphs
from benchmarks.latency.ends import Receiver, receiver
from benchmarks.latency.job import Change
from tasks.inverted_index import positions_by_word

STALL_S_MAX = 30.0
LOST_S = 8.0  # of silence, after which no more will come where records may be lost
SETTLE_S = 0.5  # after the last record that was due: what comes then is one too many
Allowed = Literal["once", "repeats", "losses"]


class Seen:
    """The outputs that have come, against the expected ones. ``latest`` and ``firsts``: s; 0 where nothing came yet."""

    def __init__(self, texts: list[str], partitions: int, allowed: Allowed = "once") -> None:
        """Work out the index of these documents."""
        self.due = [positions_by_word(text) for text in texts]  # taken out as they come
        self.latest = [0.0] * len(texts)
        self.firsts = [[0.0] * len(texts) for _ in range(partitions)]
        self.left = sum(map(len, self.due))
        self.records = 0
        self.repeated = 0
        self._versions: Counter[str] = Counter()
        self.allowed = allowed
        self._decode = msgspec.json.Decoder(Change).decode

    def take(self, partition: int, key: bytes, value: bytes, now: float) -> None:
        """Check one record. Raises SystemExit if it should not be there."""
        word, change = key.decode(), self._decode(value)
        document = change.document
        self.records += 1
        positions = self.due[document].pop(word, None)
        self._versions[word] += 1
        if not self.firsts[partition][document]:
            self.firsts[partition][document] = now
        if positions is None:
            self.repeated += 1
            if self.allowed != "repeats":
                raise SystemExit(f"document {document}, word {word!r}: a record too many: the run does not count")
            return
        if positions != change.positions or (self.allowed == "once" and change.version != self._versions[word]):
            raise SystemExit(
                f"document {document}, word {word!r}: {change}, but version {self._versions[word]} at {positions} "
                "was due: the run does not count"
            )
        self.left -= 1
        if not self.due[document]:
            self.latest[document] = now


def watch(source: Receiver, seen: Seen) -> None:
    """Read until all is there, and a little longer. Raises SystemExit if it does not come."""
    observed = 0.0  # nothing yet: the job may be starting
    end = 0.0
    begun = False
    while not end or time.monotonic() < end:
        records = source.take(0.1)
        now = time.monotonic()
        for partition, key, value in records:
            seen.take(partition, key, value, now)
        if not begun and all(seen.latest[: len(seen.firsts)]):
            begun = True
            print("begun", flush=True)
        if records:
            observed = now
        elif observed and seen.allowed == "losses" and now - observed > LOST_S:
            return
        elif observed and now - observed > STALL_S_MAX and seen.left:
            missing = [number for number, words in enumerate(seen.due) if words]
            raise SystemExit(
                f"{seen.left} records of {len(missing)} documents are missing, the first of document {missing[0]}: "
                "lost, or the job has stopped: the run does not count"
            )
        if not seen.left and not end:
            end = now + SETTLE_S


def main(log: str, topic: str, partitions: int, count: int, result: Path, allowed: Allowed) -> None:
    """Read and check."""
    texts = paragraphs()
    seen = Seen([texts[number % len(texts)] for number in range(count)], partitions, allowed)
    source = receiver(log, topic, partitions)
    gc.collect()
    gc.disable()
    print("ready", flush=True)
    watch(source, seen)
    counts = {"records": seen.records, "repeated": seen.repeated, "lost": seen.left}
    result.write_text(json.dumps({"latest": seen.latest, "firsts": seen.firsts, **counts}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]), sys.argv[6])  # type: ignore[arg-type]  # cell.py gives one of the three
