"""The experiment's job on quixstreams: documents, their words through a repartition topic, counts in RocksDB.

It runs in an environment of its own and imports nothing of this repository. Arguments: see ../tools.py.
"""

import os
import re
import sys
import threading
from collections import defaultdict
from typing import Any

from quixstreams import Application, State

WORD = re.compile(r"\w{1,64}")
Posting = tuple[str, int, list[int]]


def split(text: str, document: str, _time: int, _headers: Any) -> list[Posting]:
    """Return one posting for each word."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(WORD.findall(text.lower())):
        found[word].append(position)
    return [(word, int(document), positions) for word, positions in found.items()]


def index(posting: Posting, versions: State) -> tuple[int, list[int], int]:
    """Count the documents of the word."""
    _, document, positions = posting
    version = versions.get("version", (0, -1))[0] + 1
    versions.set("version", (version, document))
    return document, positions, version


def main(bootstrap: str, documents: str, changes: str, name: str, directory: str, guarantee: Any, ms: str) -> None:
    """Run until it is ended. ``ms``: between two commits."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=name,
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        commit_interval=int(ms) / 1000,
        state_dir=directory,
        consumer_extra_config={"fetch.queue.backoff.ms": 5},
        producer_extra_config={"linger.ms": 2},
        loglevel="WARNING",
    )
    texts = application.topic(documents, key_deserializer="str", value_deserializer="str")
    told = application.topic(changes, key_serializer="str", value_serializer="json")
    postings = application.dataframe(texts).apply(split, expand=True, metadata=True)
    by_word = postings.group_by(lambda posting: posting[0], "word", key_serializer="str", key_deserializer="str")
    by_word.apply(index, stateful=True).to_topic(told)
    application.run()


def end_with_input() -> None:
    """End when who started us has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    main(*sys.argv[1:8])
