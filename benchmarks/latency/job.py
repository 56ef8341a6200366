"""The job of the experiment: documents → postings → the index, each change of a word told at once.

The environment names the run, its stages, its partitions and its mode.
"""

import os
from typing import Literal

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8
from tasks.inverted_index import positions_by_word

RUN = os.environ.get("BENCH_RUN", "0")
PARTITIONS = int(os.environ.get("BENCH_PARTITIONS", "2"))
STAGES = int(os.environ.get("BENCH_STAGES", "2"))
MODE: Literal["aligned", "deterministic"] = (
    "deterministic" if os.environ.get("BENCH_MODE", "").startswith("deterministic") else "aligned"
)


class Posting(msgspec.Struct, array_like=True, gc=False):
    """The positions of a word, the record's key, in a document."""

    document: int
    positions: list[int]


class Change(msgspec.Struct, array_like=True, gc=False):
    """The same, and in how many documents the word is now."""

    document: int
    positions: list[int]
    version: int


documents = Topic(f"latency-documents-{RUN}", key=utf8, value=utf8)  # number → text
hops = [Topic(f"postings{number or ''}", key=utf8, value=json(Posting)) for number in range(STAGES - 1)]
postings = hops[-1]  # what the last stage reads
changes = Topic(f"latency-changes-{RUN}", key=utf8, value=json(Change))


class Split(Task):
    """A document becomes one posting for each of its words."""

    texts = Input(documents)
    out = Output(hops[0])

    def process(self, record: Record[str, str]) -> None:
        """Send each word once."""
        document, send = int(record.key), self.out.send
        for word, positions in positions_by_word(record.value).items():
            send(word, Posting(document, positions))


def hand_on(number: int) -> type[Task]:
    """Return a stage that decodes each posting, and sends it on by the same key."""

    class HandOn(Task):
        name = f"hand-on-{number}"
        taken = Input(hops[number])
        out = Output(hops[number + 1])

        def process(self, record: Record[str, Posting]) -> None:
            self.out.send(record.key, record.value)

    return HandOn


class Index(Task):
    """Counts the documents of each word, and tells."""

    found = Input(postings)
    versions = Store("versions", key=utf8, value=json(tuple[int, int]))  # word → documents, the last of them
    out = Output(changes)

    def process(self, record: Record[str, Posting]) -> None:
        """Add one document."""
        word, posting = record.key, record.value
        version = self.versions.get(word, (0, -1))[0] + 1
        self.versions.put(word, (version, posting.document))
        self.out.send(word, Change(posting.document, posting.positions, version))


stages: list[type[Task]] = [Split, *map(hand_on, range(STAGES - 2)), Index]
job = Job(f"latency-{RUN}", stages=stages, partitions=PARTITIONS, mode=MODE)
