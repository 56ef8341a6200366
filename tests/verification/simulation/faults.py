"""The faults. Each is aimed at a process; its own generator decides the details, so that all are independent.

A fault counts when it hits something: those that lie in wait say so when they go off.
"""

import random
from collections.abc import Callable

from grete.stores.memory import MemoryDisk
from tests.verification.simulation.boundary import CALLS, EARLY_CALLS, LOGICAL_CALLS, SIDES
from tests.verification.simulation.damage import (
    emptied_changelog,
    flipped_bit_in_data,
    flipped_bit_in_frame,
    other_outputs,
    thinned_input,
    truncated_changelog,
    truncated_stream,
)
from tests.verification.simulation.disk import copy_of
from tests.verification.simulation.fault_plan import DAMAGES, EMPTIED, HOURS, KINDS, LOGICAL_DAMAGES, UNKIND
from tests.verification.simulation.faulty_world import FaultyWorld, Rand
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.process import Process

Fault = Callable[[FaultyWorld, Process, Rand], str]  # the text is empty if nothing was there to hit


def crash(sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Kill a process between two things that it does."""
    sim.population.kill(target, "killed")
    return target.name


def crash_at_call(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Kill the process that comes next to one side of one call."""
    rare = rare_calls(sim.plan)
    calls = rare if rare and rand() < 0.5 else CALLS
    side, call = SIDES[int(rand() * 2)], calls[int(rand() * len(calls))]
    count = 1 if calls is rare else 1 + int(rand() * rand() * 6)
    sim.ambush.lay(side, call, count)
    return f"{side} {call}, the {count}. time"


def crash_at_boundary(_sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Kill a process before or after one of its next port calls."""
    crossings = 1 + int(rand() * 25)
    target.boundary.arm_crash(crossings)
    return f"{target.name} at crossing {crossings}"


def crash_in_restore(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Kill a process, and its successor while that restores; half of them without a store to begin with."""
    sim.population.kill(target, "killed", restart=False)
    if rand() < 0.5:
        target.host.replace(MemoryDisk())
    crossings = 1 + int(rand() * 40)
    sim.population.restart(target.task, 0, crash_at=crossings)
    return f"{target.name}, its successor at crossing {crossings}"


def crash_several(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Kill several processes at once."""
    share = 0.3 + 0.7 * rand()
    victims = [p for p in sim.population.awake() if p is target or rand() < share]
    for victim in victims:
        sim.population.kill(victim, "killed")
    return ", ".join(victim.name for victim in victims)


def zombie(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Pause a process, start a successor, let the old one go on later."""
    pause(sim, target, 150, rand)
    sim.population.restart(target.task, int(rand() * 20))
    return f"{target.name} until step {target.worker.wake_at}"


def freeze(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Pause a process for a while; no other process notices."""
    pause(sim, target, 40, rand)
    return f"{target.name} until step {target.worker.wake_at}"


def twin(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Start a second instance of a task, or two, beside a living one."""
    count = 1 + (rand() < 0.4)
    for _ in range(count):
        sim.population.restart(target.task, int(rand() * 4))
    return f"{target.name}, {count} more"


def twin_in_rollback(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Let a second instance of a task make its claim while the first one claims for a rollback; a producer dies."""
    awake = sim.population.awake()
    targets = [p for p in awake if p.wiring.channels and sim.plan.is_aligned(p.task) and not p.restoring]
    if not targets:
        return ""
    target = targets[int(rand() * len(targets))]
    producers = {producer for producer, _ in target.wiring.channels}
    victims = [p for p in awake if p.task in producers]
    sim.population.restart(target.task, 0, lurks=True)
    if victims:
        sim.population.kill(victims[int(rand() * len(victims))], "killed, for a rollback behind it")
    return target.name


def outage(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Let the log answer nothing, for up to four times as long as a task waits for an answer."""
    until = sim.time.now + int((0.2 + 3.8 * rand() * rand()) * sim.plan.settings.send_timeout_ms)
    sim.log.away_until = max(sim.log.away_until, until)
    return f"until {until} ms"


def idle_hours(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Let hours pass in which no process does anything, and then all go on: a machine that sleeps."""
    hours = 0.5 + 11.5 * rand()
    sim.time.now += int(hours * 3_600_000)
    return f"for {hours:.1f} hours"


def lose_ack(_sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Apply the next message of a process, and lose the acknowledgement."""
    target.log.lose_ack = True
    return target.name


def full_disk(_sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Let one of the next port calls find the disk full."""
    target.boundary.arm_full(1 + int(rand() * 20))
    return target.name


def delay(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Let a partition that the process writes to not answer for a while."""
    partitions = (*target.wiring.outputs, target.wiring.changelog)
    partition = partitions[int(rand() * len(partitions))]
    sim.log.blocked_until[partition] = sim.time.now + int(rand() * 8 * sim.plan.settings.checkpoint_interval_ms)
    return str(partition)


def broker_restart(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Let no partition answer for a while."""
    until = sim.time.now + int(rand() * 4 * sim.plan.settings.checkpoint_interval_ms)
    for partition in sim.log.partitions:
        sim.log.blocked_until[partition] = until
    return f"until {until} ms"


def clock_jump(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Let the clock of a partition's leader jump, forward or back."""
    partitions = list(sim.log.partitions)
    partition = target.wiring.changelog if rand() < 0.6 else partitions[int(rand() * len(partitions))]
    jump = int((rand() * 6 - 2) * sim.plan.settings.checkpoint_interval_ms)
    sim.log.skew[partition] = sim.log.skew.get(partition, 0) + jump
    return f"{partition} by {jump} ms"


def stale_store(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Kill a process and bring back an older copy of its store, or none."""
    sim.population.kill(target, "killed")
    host = target.host
    if host.backup is not None and rand() < 0.75:
        host.replace(copy_of(host.backup))
        return f"{target.name} gets an old copy"
    host.replace(MemoryDisk())
    return f"{target.name} gets an empty one"


def corrupt_store(_sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Let the next read of a store find a bad checksum: the store is wiped, the process starts again."""
    target.store.corrupt = True
    return target.name


def power_loss(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Kill everything at once; stores lose their last writes, and a log in one file loses what was not synced."""
    running = list(sim.population.all)
    for process in running:
        sim.population.kill(process, "lost its power", restart=False)
    sim.standbys.kill_all()
    share = rand() if rand() < 0.8 else 1.0
    lost = 0
    if sim.plan.compare_and_append:  # the embedded log: on the same machine
        sim.log.forget_queues()
        lost = sim.log.lose_power(share)
    for task, hosts in sim.population.hosts.items():
        for host in hosts:
            host.lose_power(rand())
        delay = int(rand() * 10)
        if task == sim.plan.together_with(task)[0]:
            sim.population.restart(task, delay)
    return f"of {len(running)} processes, {lost} messages"


def stop(sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Ask a process to stop (R6)."""
    if not target.worker.started or target.worker.stop_by:
        return ""
    target.worker.stop(sim.time.now + 6 * sim.plan.settings.checkpoint_interval_ms)
    return target.name


def pause(sim: FaultyWorld, target: Process, steps: int, rand: Rand) -> None:
    """Let a process do nothing for up to that many steps; what it has sent may or may not go on."""
    target.worker.pause(sim.time.step + 1 + int(rand() * steps))
    target.log.stalled = rand() < 0.5


def rare_calls(plan: Plan) -> tuple[str, ...]:
    """Return the calls of this world that few worlds have."""
    logical = LOGICAL_CALLS if plan.deterministic else ()
    files = ("open sink", "begin file", "write file", "name file") if plan.files else ()
    ahead = EARLY_CALLS if plan.settings.sink_delivery == "early" else ()
    plain = ("produce",) if plan.out_partitions and not (plan.aligned or plan.deterministic) else ()
    memory, early = plan.settings.early_memory_bytes_max, plan.settings.early_bytes_max
    spills = plan.aligned and memory < early and plan.topology.streams
    return logical + files + ahead + plain + (("spill", "read a spilled frame") if spills else ())


def own_rand(draw: int) -> Rand:
    """Return the generator of one fault."""
    return random.Random(draw).random


WAITING = {"crash at a call", "crash at a boundary", "lost acknowledgement", "disk full", "corrupt store"}
FAULTS: dict[str, Fault] = {
    "crash": crash,
    "crash at a call": crash_at_call,
    "crash at a boundary": crash_at_boundary,
    "crash in a restore": crash_in_restore,
    "crash of several": crash_several,
    "zombie": zombie,
    "freeze": freeze,
    "twin": twin,
    "twin in a rollback": twin_in_rollback,
    "outage": outage,
    HOURS: idle_hours,
    "lost acknowledgement": lose_ack,
    "disk full": full_disk,
    "slow partition": delay,
    "broker restart": broker_restart,
    "clock jump": clock_jump,
    "stale or wiped store": stale_store,
    "corrupt store": corrupt_store,
    "power loss": power_loss,
    "graceful stop": stop,
    "truncated stream": truncated_stream,
    "truncated changelog": truncated_changelog,
    "flipped bit in a frame": flipped_bit_in_frame,
    "flipped bit in data": flipped_bit_in_data,
    "thinned input": thinned_input,
    "other outputs": other_outputs,
    EMPTIED: emptied_changelog,
}
assert set(FAULTS) == {*KINDS, *UNKIND, HOURS, *DAMAGES, *LOGICAL_DAMAGES, EMPTIED}
