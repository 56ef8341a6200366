"""The pins of a job as they count: those in its metadata, or those of an apply whose process died at the end.

A bulk write decides whether an apply counts, by its outcome. What it pins is written before as one entry, and put into
place behind it. So after a kill at any moment a job has all pins of before, or all of the new ones.
"""

import json

from grete.core.changelog.damage import entry as reading
from grete.core.graph.topology import changelog_topic
from grete.execution.changelog.changelog_writer import find_outcome
from grete.ports import JobLogReader, JobMetadata, MetadataReader
from grete.protocol.ids import TopicPartition

APPLYING = "applying"  # the key in the job metadata
APPLY = "-apply"  # the end of its bulk write's id: without its process it may not be made to count
_FORMAT = 1  # of that entry


def pin_of(log: JobLogReader, job: str, key: str) -> bytes | None:
    """Return the value pinned under a key, or None."""
    metadata = log.read_metadata(job)
    entries = _applied(log, job, metadata)
    return entries[key] if key in entries else metadata.meta_get(key)


def note_apply(metadata: JobMetadata, bulk_write_id: str, first: str, entries: dict[str, bytes]) -> None:
    """Write what a bulk write is to pin once it counts; ``first``: the stage whose changelog has its outcome."""
    texts = {key: raw.decode() for key, raw in entries.items()}
    noted = {"format": _FORMAT, "bulk_write_id": bulk_write_id, "first": first, "entries": texts}
    metadata.produce_with_meta([], {APPLYING: json.dumps(noted).encode()}, sync=True)


def put_in_place(log: JobLogReader, job: str, metadata: JobMetadata) -> None:
    """Pin what an apply has left behind, if it counts, in one write."""
    entries = _applied(log, job, metadata)
    if entries:
        metadata.produce_with_meta([], {**entries, APPLYING: None}, sync=True)


def _applied(log: JobLogReader, job: str, metadata: MetadataReader) -> dict[str, bytes]:
    """Return the pins of an apply that counts and has not put them into place; empty: there are none."""
    raw = metadata.meta_get(APPLYING)
    if raw is None:
        return {}
    with reading(APPLYING):
        noted = json.loads(raw)
        outcomes, bulk_write_id = TopicPartition(changelog_topic(job, noted["first"]), 0), noted["bulk_write_id"]
        entries = {key: text.encode() for key, text in noted["entries"].items()}
    return entries if find_outcome(log, outcomes, bulk_write_id) else {}
