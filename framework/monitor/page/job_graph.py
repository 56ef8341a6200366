"""The graph of a job as the page draws it: topics, stages and sinks, and what flows between them."""

from collections.abc import Collection
from typing import Literal

import msgspec

from grete.api.jobs.job import Job
from grete.api.sinks.external import External
from grete.api.sinks.files import Files
from grete.api.sinks.http import Http
from grete.api.sinks.table import Table
from grete.api.topics.topic import TopicPattern
from grete.quoting import ShowRecords
from grete.settings import Settings

BOUNDS = (  # settings that hold input up, and those that a page shows beside what they bound
    "checkpoint_interval_ms",
    "unacked_bytes_max",
    "sink_buffer_bytes_max",
    "uncommitted_state_bytes_max",
    "early_bytes_max",
    "downstream_lag_messages_max",
)


class Node(msgspec.Struct, frozen=True):
    """A topic outside, a stage, or a sink that is no topic."""

    id: str
    kind: Literal["topic", "stage", "sink"]
    name: str
    partitions: int = 0
    mode: str = ""
    text: str = ""  # what kind of sink it is


class Edge(msgspec.Struct, frozen=True):
    """A flow of records between two nodes. ``counted``: a topic of the log, or "sink:" and the attribute of an Output.

    ``sender``, ``reader``: the stages at its ends, None: it comes from outside, or goes there.
    """

    source: str
    target: str
    name: str
    counted: str
    sender: str | None = None
    reader: str | None = None


class TaskShown(msgspec.Struct, frozen=True):
    """A task of the job."""

    stage: str
    partition: int

    @property
    def name(self) -> str:
        """The name of the task: stage and partition."""
        return f"{self.stage}-{self.partition}"


class StoreShown(msgspec.Struct, frozen=True):
    """A store that can be read. ``name``: "stage/store"."""

    name: str
    key: str
    value: str


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a view that does not change while a job runs."""

    job: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    tasks: tuple[TaskShown, ...]
    stores: tuple[StoreShown, ...]
    topics: tuple[str, ...]
    dead_letters: tuple[str, ...]
    bounds: dict[str, int]
    show_records: ShowRecords = "all"

    def before(self, stage: str) -> set[str]:
        """Return the stages that send to a stage."""
        return {edge.sender for edge in self.edges if edge.reader == stage and edge.sender is not None}


def graph_of(job: Job, settings: Settings, tasks: Collection[str] | None = None) -> JobGraph:
    """Return the graph of a job; ``tasks``: those that this process runs, None: all."""
    topology = job.topology()
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    letters = dict.fromkeys(each.name for stage in job.stages for each in stage.dead_letters())
    for stage in job.live:
        here = f"stage:{stage.name}"
        for topic in topology.externals_of(stage.ordinal):
            nodes.setdefault(f"topic:{topic}", Node(f"topic:{topic}", "topic", topic))
            edges.append(Edge(f"topic:{topic}", here, topic, topic, reader=stage.name))
        nodes[here] = Node(here, "stage", stage.name, stage.partitions, stage.mode)
    for stream in topology.streams:
        sender, reader = (topology.stages[end].name for end in (stream.producer, stream.consumer))
        edges.append(Edge(f"stage:{sender}", f"stage:{reader}", stream.user_topic, stream.topic, sender, reader))
    outside = job.external_sinks()
    for stage in job.stages:
        here = f"stage:{stage.name}"
        written = dict.fromkeys(each.name for each in (*stage.topics_written(), *stage.dead_letters()))
        for topic in written:
            if topic in outside or topic in letters:
                nodes.setdefault(f"topic:{topic}", Node(f"topic:{topic}", "topic", topic))
                edges.append(Edge(here, f"topic:{topic}", topic, topic, sender=stage.name))
        for attribute, output in stage.outputs.items():
            if (what := _sink(output.target)) is not None:
                sink = f"sink:{stage.name}.{attribute}"
                nodes[sink] = Node(sink, "sink", attribute, text=what)
                edges.append(Edge(here, sink, attribute, f"sink:{attribute}", sender=stage.name))
    shown = (TaskShown(stage.name, partition) for stage, partition in job.tasks())
    stores = [(f"{stage.shown}/{store.shown}", store) for stage in job.stages for store in stage.all_stores()]
    return JobGraph(
        job=job.name,
        nodes=tuple(nodes.values()),
        edges=tuple(edges),
        tasks=tuple(task for task in shown if tasks is None or task.name in tasks),
        stores=tuple(StoreShown(name, store.key.name, store.value.name) for name, store in stores),
        topics=tuple(node.name for node in nodes.values() if node.kind == "topic"),
        dead_letters=tuple(letters),
        bounds={name: getattr(settings, name) for name in BOUNDS},
        show_records=settings.show_records,
    )


def _sink(target: object) -> str | None:
    """Return the kind of sink that a target is, None for a topic. Its address may hold a secret."""
    if isinstance(target, Files):
        return f"files in {target.directory}"
    if isinstance(target, Table):
        return f"table {target.table}"
    if isinstance(target, Http):
        return "web service"
    if isinstance(target, TopicPattern):
        return f"topics {target.pattern}"
    return f"sink {target.name}" if isinstance(target, External) else None
