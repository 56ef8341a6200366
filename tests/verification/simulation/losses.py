"""Worlds at most once, and without a guarantee: those of aligned seeds, whose sources alone read from the outside.

python -m tests.verification.simulation.losses FIRST BEHIND     # seeds
"""

import sys
from dataclasses import replace
from itertools import product
from typing import Literal

import msgspec

from grete.core.graph.task_topology import wire
from grete.protocol.ids import split_producer_id
from tests.verification.simulation.feeds import as_tasks_see, expected_of
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.run import small_world
from tests.verification.simulation.scheduler import Simulation
from tests.verification.simulation.stops import StoppedWorld
from tests.verification.simulation.world import make_plan

Guarantee = Literal["at-most-once", "none"]
GUARANTEES: tuple[Guarantee, ...] = ("at-most-once", "none")


class _Stopped(StoppedWorld):
    """A world that is stopped, of which only that it ends and skips nothing is asked.

    A source commits the positions of what it holds, then what comes of it. Where what is committed can be read only
    later, each commit takes intervals.
    """

    halves_max = 60


def losing(plan: Plan, guarantee: Guarantee = "at-most-once") -> Plan | None:
    """Return the world with it; None: its job would be refused, or it is not aligned, or something breaks in it.

    Its inputs bring nothing twice: what is skipped then may come again.
    """
    if not plan.aligned or plan.deterministic or plan.damaged:
        return None
    sources = {stage for stage in plan.topology.external_inputs if plan.topology.is_source(stage)}
    if any(stage in plan.topology.broadcast for stage in sources):
        return None
    external = {stage: topics for stage, topics in plan.topology.external_inputs.items() if stage in sources}
    first = {stage: topics for stage, topics in plan.topology.bootstrap.items() if stage in sources}
    topology = replace(plan.topology, external_inputs=external, bootstrap=first, broadcast={})
    read = {topic for topics in external.values() for topic in topics}
    inputs = {partition: rows for partition, rows in plan.inputs.items() if partition.topic in read}
    edges = tuple((stream.producer, stream.consumer) for stream in topology.streams)
    plan = replace(
        plan,
        topology=topology,
        wirings={task: wire(topology, *split_producer_id(task)) for task in plan.wirings},
        settings=msgspec.structs.replace(plan.settings, processing_guarantee=guarantee),
        inputs=inputs,
        expected=expected_of(edges, as_tasks_see(topology, inputs), {*plan.out_partitions, *plan.files}),
        once=frozenset(),
        numbered=frozenset(),
        reordered=False,
    )
    return plan if guarantee == "at-most-once" else _untimed(plan)


def _untimed(plan: Plan) -> Plan | None:
    """Return the world without what `none` refuses; None: it has copies of records, which look taken twice."""
    if any(stream.broadcast for stream in plan.topology.streams):
        return None
    topology = replace(plan.topology, timed=frozenset())
    return replace(
        plan,
        topology=topology,
        wirings={task: wire(topology, *split_producer_id(task)) for task in plan.wirings},
        aligned=False,
        timers=False,
        joins=False,
        expires=False,
        wall=False,
        drained=False,
        drain_faults=(),
    )


def run_losing(seed: int, guarantee: Guarantee = "at-most-once", *, stopped: bool = False) -> Simulation | None:
    """Run the world of a seed, with its faults, or with a stop and no fault; None: it has none. Raises Violation."""
    plan = losing(make_plan(seed), guarantee)
    if plan is None:
        return None
    with small_world(plan.knobs):
        simulation = _Stopped(plan) if stopped else Simulation(plan)
        simulation.run()
    return simulation


def _main() -> int:
    failed = skipped = worlds = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        for guarantee, stopped in product(GUARANTEES, (False, True)):
            try:
                simulation = run_losing(seed, guarantee, stopped=stopped)
            except Violation as error:
                failed += 1
                print(f"seed {seed}, {guarantee}{', stopped' * stopped}: {error}", flush=True)
                continue
            if simulation is not None:
                worlds += 1
                skipped += (lost := simulation.checker.seen["records skipped"])
                if stopped and lost:
                    failed += 1
                    print(f"seed {seed}, {guarantee}: a stop has skipped {lost} records", flush=True)
    print(f"{worlds} worlds, {skipped} records skipped, {failed} failures")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, _main()))
