"""The keys of a job's metadata, each with the function that writes it."""

from collections.abc import Callable

from docs.hooks.markdown import code, summary, table
from grete.feeds.folder import FolderFeed
from grete.feeds.numbered_file import NumberedFile
from grete.feeds.numbers import PlannedNumbers
from grete.job import copies, key_metadata, metadata, named_topics
from grete.job.dead_letters import Redrive
from grete.job.directory import JobDirectory  # noqa: F401  # job before state: the order of the packages
from grete.job.redriven_outputs import Turn
from grete.logs.topic_identity import pin_topics
from grete.state.pins import graph_pinning, pinning, pins, unbound

KEYS: dict[str, Callable[..., object] | type] = {
    metadata._GUARANTEE: metadata.guarantee_entry,
    pinning.DEFINED: pinning.pin_definition,
    unbound.BEFORE: unbound.note_before,
    graph_pinning.GRAPH: graph_pinning.pin_graph,
    pins.APPLYING: pins.note_apply,
    key_metadata._key("TOPIC"): key_metadata.pin,
    key_metadata.RESCALED: metadata.pin_rescale,
    copies.PLACE: copies.note_place,
    named_topics.NAMED: named_topics.JobTopicNames,
    "topic TOPIC": pin_topics,
    "redriven/TOPIC/PARTITION": Redrive,
    "redriving/TOPIC/PARTITION": Turn,
    "feed-root/TOPIC": FolderFeed,
    "feed/TOPIC/PATH": FolderFeed,
    "feed-plan/TOPIC": PlannedNumbers,
    "feed-lines/TOPIC/PATH": NumberedFile,
}


def part() -> str:
    """Return the table of keys."""
    rows = [(code(key), summary(by.__doc__), code(f"{by.__module__}.{by.__name__}")) for key, by in KEYS.items()]
    return table(("key", "what it is for", "written by"), rows)
