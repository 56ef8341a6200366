"""Checkpoints that others close, as a process tells them to its sources (A1)."""

from types import SimpleNamespace
from typing import Any

from grete.core.graph.topology import Stage, Stream, Topology
from grete.protocol.ids import producer_id
from grete.worker.process.observed_checkpoints import ObservedCheckpoints

STREAMS = (Stream("j.a.t.b", 0, 1, 2, "t"), Stream("j.b.o.c", 1, 2, 2, "o"))
JOB = Topology("j", (Stage("a", 0, 2), Stage("b", 1, 2), Stage("c", 2, 2)), STREAMS, {0: ("in",)})


def task(stage: int, observed: int | None, *, running: bool = True) -> Any:
    """Return a driver of a task; what it is told is kept in ``told``."""
    told = list[tuple[int, bool]]()
    mode = SimpleNamespace(
        observed_checkpoint=observed,
        observe_checkpoint=lambda checkpoint_id, *, sees_next: told.append((checkpoint_id, sees_next)),
    )
    wiring = SimpleNamespace(deterministic=False, producer=producer_id(stage, 0))
    return SimpleNamespace(mode=mode, wiring=wiring, running=running, parts=SimpleNamespace(owner=id(told)), told=told)


def test_a_source_is_told_once_of_the_greatest_marker() -> None:
    """One task of each stage behind it is enough; a source that comes later is told, too."""
    checkpoints, source = ObservedCheckpoints(JOB), task(0, None)
    tasks = [task(1, 2_000), task(2, 1_900)]
    for _ in range(2):
        checkpoints.tell(tasks, [source])
    assert source.told == [(2_000, True)]
    tasks[1].mode.observed_checkpoint = 2_100
    later = task(0, None, running=False)
    checkpoints.tell(tasks, [source, later])
    later.running = True
    checkpoints.tell(tasks, [source, later])
    assert (source.told[1:], later.told) == ([(2_100, True)], [(2_100, True)])


def test_a_source_is_told_where_markers_may_come_unseen() -> None:
    """A stage is not here, or a task does something else, or restores: the source goes by its timer."""
    for tasks in (
        [task(1, 2_000)],
        [task(1, 2_000), task(2, None)],
        [task(1, 2_000), task(2, 2_000, running=False)],
    ):
        checkpoints, source = ObservedCheckpoints(JOB), task(0, None)
        checkpoints.tell([task(1, 2_000), task(2, 2_000)], [source])
        checkpoints.tell(tasks, [source])
        assert source.told[0] == (2_000, True)
        assert not source.told[1][1]


def test_where_no_task_waits_for_markers_nothing_is_told() -> None:
    """A job of one stage."""
    source = task(0, None)
    ObservedCheckpoints(Topology("j", (Stage("a", 0, 2),), (), {0: ("in",)})).tell([], [source])
    assert source.told == []


def test_where_a_task_has_no_source_beside_it_nothing_is_told() -> None:
    """Stage c has a third partition, whose own input or timers would wait for a source elsewhere that rests."""
    stages = (Stage("a", 0, 2), Stage("b", 1, 2), Stage("c", 2, 3))
    streams = (STREAMS[0], Stream("j.b.o.c", 1, 2, 3, "o"))
    source = task(0, None)
    ObservedCheckpoints(Topology("j", stages, streams, {0: ("in",), 2: ("in2",)})).tell(
        [task(1, 2_000), task(2, 1_900)], [source]
    )
    assert source.told == []
