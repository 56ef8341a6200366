"""Pins the graph of a job in its metadata, and holds its code against it and against the last commits at each start.

A graph may grow: stages are added after the others, which may read what those write. Tasks of both codes work side by
side then, so the earlier code may go on as before. Everything else is refused, before anything is written. The core
also checks the task's own commit (grete.core.graph.graph_check): here all tasks of a process are looked at before the
first of them writes.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from grete.api.jobs.changes import PLAN, stage_changes
from grete.api.jobs.job import Job
from grete.core.changelog.damage import entry as reading
from grete.core.graph.graph_check import WAY_BACK, check_commit, check_known
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Stage, Stream, Topology, stream_topic
from grete.errors import ConfigError, FrameworkError
from grete.ports import JobLogReader, JobMetadata, MetadataReader
from grete.protocol.commit import Commit
from grete.protocol.ids import split_producer_id
from grete.state.pins.pinning import know_dropped
from grete.state.pins.pins import pin_of
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings, newest_commits

GRAPH = "graph"  # the key in the job metadata
_FORMAT = 3  # of a pinned graph: a reader refuses a higher one; 2 with a dropped stage, not migrated; else 1
_FORK = (
    "start the code that has it; or go on without it in a job of another name, with the state of this one: "
    "grete fork JOB SECOND_JOB; or give up that stage: grete plan JOB, then grete apply JOB"
)


def check_graph(job: Job, log: JobLogReader, tasks: Sequence[TaskWiring] | None = None) -> None:
    """Hold a job's code against its pinned graph and the last commits of ``tasks`` (None: all); write nothing.

    ``job`` takes over under which fingerprints the job has run. Raises ConfigError: what has changed, with a way out.
    """
    know_dropped(job, log)
    job.count_broadcast(log.partitions)
    ours, pinned = job.topology(), pinned_graph(job, log)
    if pinned is None:
        commits = _commits(log, all_wirings(job))  # of a job made before graphs were pinned, or of none at all
        first, known = _first_of(ours, [commit for _, commit in commits])
    else:
        commits = _commits(log, all_wirings(job) if tasks is None else tasks)
        _compare(pinned, ours)
        if _same_counts(pinned, ours):
            first, known = pinned.first, pinned.known | pinned.fingerprints()
        else:
            first, known = _rescaled(pinned, job, [commit for _, commit in commits])
        _check_added(pinned, ours, commits, tasks)
    for wiring, commit in commits:
        check_commit(wiring, commit)
    job.keep_fingerprints(first, known)


def know_graph(job: Job, log: JobLogReader) -> None:
    """Let a job take over what the log knows of its graph, so that its commits can be read; refuse nothing."""
    know_dropped(job, log)
    job.count_broadcast(log.partitions)
    pinned = pinned_graph(job, log)
    if pinned is not None and _continues(pinned, job.topology()):
        job.keep_fingerprints(pinned.first, pinned.known | pinned.fingerprints())


def _continues(pinned: Topology, ours: Topology) -> bool:
    """Tell whether one of the two graphs is the other one with stages added last, or they are equal."""
    common = min(len(pinned.stages), len(ours.stages))
    return pinned.without_last(common).fingerprint() == ours.without_last(common).fingerprint()


def commits_of(job: Job, log: JobLogReader) -> Iterator[tuple[TaskWiring, CommittedAt | FrameworkError]]:
    """Yield the tasks that a job has in the log, with their last commits, or with what a start says of them.

    That is an error for a changelog that is damaged, or whose last commit is of no graph that the job has had.
    Raises Halted, ConfigError: the pinned graph cannot be read.
    """
    ours, pinned = job.topology(), pinned_graph(job, log)
    graph = ours if pinned is None else replace(pinned, known=pinned.known | ours.fingerprints())
    tasks = [wire(graph, stage.ordinal, number) for stage in graph.stages for number in range(stage.partitions)]
    for wiring, found in newest_commits(log, tasks):
        told: CommittedAt | FrameworkError = found
        if isinstance(found, CommittedAt) and pinned is not None:
            try:
                check_known(wiring, found.commit)
            except ConfigError as error:
                told = error
        yield wiring, told


def check_commits(job: Job, log: JobLogReader) -> None:
    """Raise what a start says of a changelog that is damaged, or that something else has written to."""
    for _, found in commits_of(job, log):
        if isinstance(found, FrameworkError):
            raise found


def pinned_graph(job: Job, log: JobLogReader) -> Topology | None:
    """Return the graph that a job has in the log, without the topics from outside; None if none is pinned."""
    raw = pin_of(log, job.name, GRAPH)
    return None if raw is None else decode_graph(job.name, raw)


def check_whole(job: Job, log: JobLogReader) -> None:
    """Refuse code that lacks a stage of the job, where all of a job's state is to be written. Raises ConfigError."""
    check_graph(job, log)
    pinned = pinned_graph(job, log)
    lacks = () if pinned is None else pinned.stages[len(job.stages) :]
    if lacks:
        names = ", ".join(repr(stage.name) for stage in lacks)
        raise ConfigError(f"job {job.name!r} has the stages {names}, too: use the code that has them")


def pin_graph(job: Job, metadata: JobMetadata) -> None:
    """Write the graph of a job that was checked, if it is new or has grown."""
    if entry := graph_entry(job, metadata):
        metadata.produce_with_meta([], entry)


def graph_entry(job: Job, metadata: MetadataReader) -> dict[str, bytes]:
    """Return the pins of the checked graph of a job, empty if they are there."""
    raw, ours = metadata.meta_get(GRAPH), job.topology()
    pinned = None if raw is None else decode_graph(job.name, raw)
    if pinned is not None and _same_counts(pinned, ours) and len(pinned.stages) >= len(ours.stages):
        return {}
    return {GRAPH: encode_graph(ours)}


def encode_graph(topology: Topology) -> bytes:
    """Return a graph as the job metadata holds it."""
    first = topology.fingerprint() if topology.first is None else topology.first
    names, partitions = [stage.name for stage in topology.stages], topology.stages[0].partitions
    described = {
        "format": _FORMAT if topology.migrated else 2 if any(not stage.partitions for stage in topology.stages) else 1,
        "partitions": partitions,
        "stages": [
            {"number": n, "name": stage.name, "mode": "deterministic" if n in topology.deterministic else "aligned"}
            | ({} if stage.partitions == partitions else {"partitions": stage.partitions})
            for n, stage in enumerate(topology.stages)
        ],
        "streams": [
            {"topic": stream.user_topic, "from": names[stream.producer], "to": names[stream.consumer]}
            | ({"broadcast": True} if stream.broadcast else {})
            for stream in topology.streams
        ],
        "first": f"{first:016x}",  # text: not every reader of JSON keeps 63 bits
        "known": [f"{each:016x}" for each in sorted(topology.known)],
    } | ({"migrated": topology.migrated} if topology.migrated else {})
    return json.dumps(described).encode()


@reading(GRAPH)
def decode_graph(job: str, raw: bytes) -> Topology:
    """Return a pinned graph, without the topics from outside. Raises ConfigError: a later release has written it."""
    found: dict[str, Any] = json.loads(raw)
    if found["format"] not in range(1, _FORMAT + 1):
        raise ConfigError(
            f"job {job!r}: its graph is pinned in format {found['format']}, and this release of Grete knows format "
            f"{_FORMAT}: start it with the release that it ran with last"
        )
    numbers = {stage["name"]: stage["number"] for stage in found["stages"]}
    counts = {stage["name"]: stage.get("partitions", found["partitions"]) for stage in found["stages"]}
    return Topology(
        job,
        tuple(Stage(stage["name"], stage["number"], counts[stage["name"]]) for stage in found["stages"]),
        tuple(
            Stream(
                stream_topic(job, s["from"], s["topic"], s["to"]),
                numbers[s["from"]],
                numbers[s["to"]],
                counts[s["to"]],
                s["topic"],
                broadcast=s.get("broadcast", False),
            )
            for s in found["streams"]
        ),
        deterministic=frozenset(stage["number"] for stage in found["stages"] if stage["mode"] == "deterministic"),
        first=int(found["first"], 16),
        known=frozenset(int(each, 16) for each in found["known"]),
        migrated=found.get("migrated", 0),
    )


def _commits(log: JobLogReader, tasks: Sequence[TaskWiring]) -> list[tuple[TaskWiring, Commit]]:
    """Return the tasks that have committed, with their last commits. A task of a damaged changelog halts itself."""
    return [(wiring, at.commit) for wiring, at in newest_commits(log, tasks) if isinstance(at, CommittedAt)]


def _first_of(ours: Topology, commits: Sequence[Commit]) -> tuple[int | None, frozenset[int]]:
    """Return of a job without a pinned graph under which fingerprint it first ran, and all that its commits show."""
    known = frozenset(commit.fingerprint for commit in commits)
    graphs = [ours.without_last(count).fingerprint() for count in range(1, len(ours.stages) + 1)]
    return next((each for each in graphs if each in known & ours.fingerprints()), None), known


def _same_counts(pinned: Topology, ours: Topology) -> bool:
    """Tell whether the stages that both graphs have have as many partitions in both."""
    both = zip(pinned.stages, ours.stages, strict=False)
    return all(before.partitions == now.partitions for before, now in both)


def _rescaled(pinned: Topology, job: Job, commits: Sequence[Commit]) -> tuple[int | None, frozenset[int]]:
    """Return the fingerprints of a job whose pinned partitions are not the code's: a rescale was killed before its end.

    Raises ConfigError unless the commits say so.
    """
    first, known = _first_of(job.topology(), commits)
    if first is None:
        both = zip(pinned.stages, job.stages, strict=False)
        changed = {now.name: was.partitions for was, now in both if was.partitions != now.partitions}
        stage = job.stage(next(iter(changed)))
        before = changed[stage.name]
        others = job.stages[: len(pinned.stages)]
        alone = not stage.follows_job or any(s.follows_job and s.name not in changed for s in others)
        where, option = (f"stage {stage.name!r} of ", f" --stage={stage.name}") if alone else ("", "")
        raise ConfigError(
            f"{where}job {job.name!r} has {before} partitions, not {stage.partitions} as in this code: write "
            f"{stage.declared_with(before, alone=alone)}; {way_to_count(stage.partitions, before, option, job)}",
            stage=stage.name,
        )
    return first, known


def way_to_count(partitions: int, before: int, option: str, job: Job) -> str:
    """Return the way to another number of partitions: what a command would refuse is no way."""
    if "deterministic" in job.modes:
        return "a deterministic job keeps its number: run its inputs through a job of another name"
    if partitions < before:
        return "to have fewer: grete fork JOB SECOND_JOB, a job of another name"
    return f"to have more: grete rescale JOB{option} --partitions={partitions}"


def _compare(pinned: Topology, ours: Topology) -> None:
    """Refuse code whose stages are not those of the graph, in their order, or whose streams between them differ."""
    common = min(len(pinned.stages), len(ours.stages))
    names = [stage.name for stage in pinned.stages], [stage.name for stage in ours.stages]
    if moved := stage_changes(*names):
        told = "; ".join(f"{change.what}: {change.way}" for change in moved)
        raise ConfigError(f"job {ours.job!r}: {told}. {PLAN}. Two jobs of one cluster need two names")
    changes = []
    for before in pinned.stages[:common]:
        number = before.ordinal
        if (number in pinned.deterministic) != (number in ours.deterministic):
            modes = ["aligned", "deterministic"]
            was, now_is = modes[number in pinned.deterministic], modes[number in ours.deterministic]
            changes.append(f"stage {before.name!r} was {was} and is {now_is}")
    if not changes:
        old, new = (edges_of(each, names[0][:common]) for each in (pinned, ours))
        changes += [f"{edge} is gone" for edge in sorted(old - new)] + [f"{edge} is new" for edge in sorted(new - old)]
        back = (stream for stream in ours.streams if stream.consumer < common <= stream.producer)
        changes += [
            f"stage {ours.stages[s.consumer].name!r} reads {s.user_topic!r} from {ours.stages[s.producer].name!r}, "
            "which was added later"
            for s in back
        ]
    if changes:
        order = ", ".join(repr(stage.name) for stage in pinned.stages)
        raise ConfigError(
            f"the graph of job {ours.job!r} has changed: {'; '.join(changes)}. It has run with the stages {order}: "
            f"{WAY_BACK}. {PLAN}. Two jobs of one cluster need two names"
        )


def edges_of(topology: Topology, stages: Collection[str]) -> set[str]:
    """Return the streams between stages of these names, as one reads them."""
    names, prefix = [stage.name for stage in topology.stages], len(topology.job) + 1
    found = (s for s in topology.streams if names[s.producer] in stages and names[s.consumer] in stages)
    return {
        f"the {'broadcast ' * stream.broadcast}stream {stream.topic[prefix:]!r} from {names[stream.producer]!r} to "
        f"{names[stream.consumer]!r}"
        for stream in found
    }


def _check_added(
    pinned: Topology,
    ours: Topology,
    commits: Sequence[tuple[TaskWiring, Commit]],
    tasks: Sequence[TaskWiring] | None,
) -> None:
    """Refuse code without the stages that were added last, where one of its tasks has sent to them (1.2).

    Of an aligned task its last commit tells. A deterministic one sends before it commits, so it may have: what it made
    without that stage afterwards would have other numbers there.
    """
    added = {stream.topic: stream for stream in pinned.streams if stream.consumer >= len(ours.stages)}
    for wiring, commit in commits:
        for sent in commit.outputs:
            if sent.topic in added:
                reader = pinned.stages[added[sent.topic].consumer].name
                raise ConfigError(
                    f"{wiring.name}: since its last commit (checkpoint {commit.checkpoint_id}) it sends to stage "
                    f"{reader!r} of job {ours.job!r}, and this code has no such stage: {_FORK}",
                    task=wiring.name,
                    checkpoint_id=commit.checkpoint_id,
                )
    hosted = {stage.ordinal for stage in ours.stages} if tasks is None else {_number(wiring) for wiring in tasks}
    for stream in added.values():
        if stream.producer in hosted & ours.deterministic:
            sender, reader = ours.stages[stream.producer].name, pinned.stages[stream.consumer].name
            raise ConfigError(
                f"stage {sender!r} is deterministic and sends to stage {reader!r} of job {ours.job!r}, and this code "
                f"has no such stage: {_FORK}"
            )


def _number(wiring: TaskWiring) -> int:
    return split_producer_id(wiring.producer)[0]
