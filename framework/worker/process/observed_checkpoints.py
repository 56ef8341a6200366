"""Tells tasks of a process which checkpoints (A1) and times (D1) of sources elsewhere have reached it."""

from collections.abc import Collection, Iterable

from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Topology
from grete.execution.engine.driver import TaskDriver
from grete.protocol.ids import split_producer_id


class ObservedCheckpoints:
    """Collects the greatest checkpoint of which a marker has reached a task of this process.

    A source sends its markers into all partitions of its streams, so one task of each stage that waits for markers
    observes all checkpoints. Where one is missing, or is busy, the sources of this process close by their timers.

    So beside each task that waits for markers there must be a source before it: what the task has of its own, from
    outside or by the clock, waits for the next checkpoint. A stage with more partitions than all sources before it has
    tasks without one, and then nothing is told in the whole job.
    """

    def __init__(self, topology: Topology) -> None:
        """Nothing is told yet."""
        wirings = {stage.ordinal: wire(topology, stage.ordinal, 0) for stage in topology.stages}
        listeners = {number for number, each in wirings.items() if not (each.is_source or each.deterministic)}
        sources = {number for number, each in wirings.items() if each.is_source}
        self._listeners = listeners if all(_beside_sources(topology, each, sources) for each in listeners) else set()
        self._news = 0, False  # the greatest checkpoint, and whether the next one will be observed at once
        self._told = set[int]()  # the sources that know this, by owner
        self._time = 0  # the last logical time that has reached a task here

    def tell(self, tasks: Iterable[TaskDriver], sources: Iterable[TaskDriver]) -> None:
        """Tell the ``sources`` what the other ``tasks`` of the process have observed, if that is news to them."""
        if not self._listeners:
            return
        news = self._observed(tasks)
        if news != self._news:
            self._news = news
            self._told.clear()
        for driver in sources:
            if driver.parts.owner not in self._told and driver.running:
                self._told.add(driver.parts.owner)
                driver.mode.observe_checkpoint(news[0], sees_next=news[1])

    def tell_time(self, tasks: Collection[TaskDriver]) -> None:
        """Tell the tasks of the last logical time that has reached one of them, if that is news (D1)."""
        observed = max((driver.mode.observed for driver in tasks), default=0)
        if observed > self._time:
            self._time = observed
            for driver in tasks:
                driver.mode.observe(observed)

    def _observed(self, tasks: Iterable[TaskDriver]) -> tuple[int, bool]:
        checkpoint_id, stages = 0, set[int]()
        for driver in tasks:
            if not driver.wiring.deterministic:
                observed = driver.mode.observed_checkpoint if driver.running else None
                if observed is None:
                    return 0, False
                checkpoint_id = max(checkpoint_id, observed)
                stages.add(split_producer_id(driver.wiring.producer)[0])
        return checkpoint_id, self._listeners <= stages


def _beside_sources(topology: Topology, stage: int, sources: Collection[int]) -> bool:
    """Whether each task of a stage has one of ``sources`` before it in its process, which hosts a partition of all."""
    before, found = {stage}, set[int]()
    while before != found:
        found = set(before)
        before |= {stream.producer for stream in topology.streams if stream.consumer in found}
    partitions = [topology.stages[each].partitions for each in before.intersection(sources)]
    return topology.stages[stage].partitions <= max(partitions, default=0)
