"""Topology: what the fingerprint covers, and what cannot be one."""

from dataclasses import replace

import pytest

from grete.core.graph.topology import Stage, Stream, Topology, stream_topic

STAGES = (Stage("a", 0, 2), Stage("b", 1, 2))
STREAM = Stream(stream_topic("j", "a", "t", "b"), 0, 1, 2, "t")
TOPOLOGY = Topology("j", STAGES, (STREAM,), {0: ("in",)})
PINNED = 1011919140776631292


def test_fingerprint_is_pinned() -> None:
    """It is a non-negative INT64 that never changes between releases: tasks halt on another one (1.2)."""
    assert TOPOLOGY.fingerprint() == PINNED
    assert 0 <= PINNED < 1 << 63


@pytest.mark.parametrize(
    "other",
    [
        replace(TOPOLOGY, job="k"),
        replace(TOPOLOGY, streams=()),
        replace(TOPOLOGY, stages=(*STAGES, Stage("c", 2, 2))),
        replace(TOPOLOGY, stages=(Stage("b", 0, 2), Stage("a", 1, 2))),
        replace(TOPOLOGY, stages=(Stage("a", 0, 3), Stage("b", 1, 2))),
        replace(TOPOLOGY, streams=(replace(STREAM, producer=1, consumer=0),)),
        replace(TOPOLOGY, streams=(replace(STREAM, broadcast=True),)),
        replace(TOPOLOGY, migrated=2),
    ],
)
def test_fingerprint_covers_stages_edges_and_counts(other: Topology) -> None:
    """Another job, stage, order, edge, partition count or version after a migration has another fingerprint (1.2)."""
    assert other.fingerprint() != TOPOLOGY.fingerprint()


def test_a_migrated_graph_takes_nothing_of_before() -> None:
    """Nor of a part of it: code of before would write keys that are not found."""
    assert TOPOLOGY.fingerprints().isdisjoint(replace(TOPOLOGY, migrated=2).fingerprints())


def test_fingerprint_leaves_out_external_topics() -> None:
    """External topics are not part of it: a source may read another topic in the next run."""
    assert replace(TOPOLOGY, external_inputs={}).fingerprint() == TOPOLOGY.fingerprint()


def test_edges_are_found_from_both_ends() -> None:
    """A stream is into its consumer and out of its producer; a stage without one is a source (A1)."""
    assert TOPOLOGY.streams_into(1) == TOPOLOGY.streams_out_of(0) == (STREAM,)
    assert TOPOLOGY.streams_into(0) == TOPOLOGY.streams_out_of(1) == ()
    assert (TOPOLOGY.is_source(0), TOPOLOGY.is_source(1)) == (True, False)
    assert (TOPOLOGY.externals_of(0), TOPOLOGY.externals_of(1)) == (("in",), ())
    assert STREAM.topic == "j.a.t.b"
    assert TOPOLOGY.changelog(1) == "j.b.changelog"


@pytest.mark.parametrize(
    ("stages", "streams"),
    [
        ((Stage("a", 1, 2),), ()),
        (STAGES, (replace(STREAM, consumer=2),)),
        (STAGES, (replace(STREAM, partitions=3),)),
        (STAGES, (STREAM, STREAM)),
    ],
)
def test_contradictions_are_refused(stages: tuple[Stage, ...], streams: tuple[Stream, ...]) -> None:
    """Ordinals are indexes, streams join known stages with their counts, and no two share a topic."""
    with pytest.raises(ValueError, match=r"ordinal|joins|partitions|two edges"):
        Topology("j", stages, streams)
