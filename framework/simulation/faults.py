"""What can go wrong. A fault is chosen, aimed at a process and done; it is listed with the step at which that was."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from framework.simulation.disk import copy_of
from framework.stores.memory import MemoryDisk

if TYPE_CHECKING:
    from framework.simulation.process import Process
    from framework.simulation.scheduler import Simulation


def crash(sim: "Simulation", target: "Process") -> str:
    """Kill a process between two things that it does."""
    sim.kill(target, "killed")
    return target.name


def crash_at_boundary(sim: "Simulation", target: "Process") -> str:
    """Kill a process before or after one of its next port calls."""
    crossings = 1 + int(sim.rand() * 25)
    target.boundary.arm_crash(crossings)
    return f"{target.name} at crossing {crossings}"


def crash_in_restore(sim: "Simulation", target: "Process") -> str:
    """Kill a process, and its successor while that restores."""
    sim.kill(target, "killed", restart=False)
    crossings = 1 + int(sim.rand() * 30)
    sim.restart(target.task, 0, crash_at=crossings)
    return f"{target.name}, its successor at crossing {crossings}"


def crash_several(sim: "Simulation", target: "Process") -> str:
    """Kill several processes at once."""
    share = 0.3 + 0.7 * sim.rand()
    victims = [p for p in sim.awake() if p is target or sim.rand() < share]
    for victim in victims:
        sim.kill(victim, "killed")
    return ", ".join(victim.name for victim in victims)


def zombie(sim: "Simulation", target: "Process") -> str:
    """Pause a process, start a successor, let the old one go on later."""
    pause(sim, target, 150)
    sim.restart(target.task, int(sim.rand() * 20))
    return f"{target.name} until step {target.wake_at}"


def freeze(sim: "Simulation", target: "Process") -> str:
    """Pause a process for a while; nobody notices."""
    pause(sim, target, 40)
    return f"{target.name} until step {target.wake_at}"


def twin(sim: "Simulation", target: "Process") -> str:
    """Start a second instance of a task, or two, beside a living one."""
    count = 1 + (sim.rand() < 0.4)
    for _ in range(count):
        sim.restart(target.task, int(sim.rand() * 4))
    return f"{target.name}, {count} more"


def lose_ack(_sim: "Simulation", target: "Process") -> str:
    """Apply the next message of a process, and lose the acknowledgement."""
    target.log.lose_ack = True
    return target.name


def full_disk(sim: "Simulation", target: "Process") -> str:
    """Let one of the next port calls find the disk full."""
    target.boundary.arm_full(1 + int(sim.rand() * 20))
    return target.name


def delay(sim: "Simulation", target: "Process") -> str:
    """Let a partition that the process writes to not answer for a while."""
    partitions = (*target.wiring.outputs, target.wiring.changelog)
    partition = partitions[int(sim.rand() * len(partitions))]
    sim.log.blocked_until[partition] = sim.now + int(sim.rand() * 8 * sim.plan.settings.interval_ms)
    return str(partition)


def broker_restart(sim: "Simulation", _target: "Process") -> str:
    """Let no partition answer for a while."""
    until = sim.now + int(sim.rand() * 4 * sim.plan.settings.interval_ms)
    for partition in (*sim.log.partitions, None):
        sim.log.blocked_until[partition] = until
    return f"until {until} ms"


def clock_jump(sim: "Simulation", target: "Process") -> str:
    """Let the clock of a partition's leader jump, forward or back."""
    partitions = list(sim.log.partitions)
    partition = target.wiring.changelog if sim.rand() < 0.6 else partitions[int(sim.rand() * len(partitions))]
    jump = int((sim.rand() * 6 - 2) * sim.plan.settings.interval_ms)
    sim.log.skew[partition] = sim.log.skew.get(partition, 0) + jump
    return f"{partition} by {jump} ms"


def stale_store(sim: "Simulation", target: "Process") -> str:
    """Kill a process and bring back an older copy of its store, or none."""
    sim.kill(target, "killed")
    host = target.host
    if host.backup is not None and sim.rand() < 0.75:
        host.disk = copy_of(host.backup)
        return f"{target.name} gets an old copy"
    host.disk = MemoryDisk()
    return f"{target.name} gets an empty one"


def stop(sim: "Simulation", target: "Process") -> str:
    """Ask a process to stop (R6)."""
    if not target.started or target.stop_by:
        return "nothing"
    target.driver.stop()
    target.stop_by = sim.now + 6 * sim.plan.settings.interval_ms
    return target.name


def pause(sim: "Simulation", target: "Process", steps: int) -> None:
    """Let a process do nothing for up to so many steps; what it has sent may or may not go on."""
    target.paused = True
    target.wake_at = sim.step + 1 + int(sim.rand() * steps)
    target.log.stalled = sim.rand() < 0.5


Fault = Callable[["Simulation", "Process"], str]

FAULTS: dict[str, tuple[Fault, int]] = {
    "crash": (crash, 10),
    "crash at a boundary": (crash_at_boundary, 26),
    "crash in a restore": (crash_in_restore, 10),
    "crash of several": (crash_several, 5),
    "zombie": (zombie, 14),
    "freeze": (freeze, 4),
    "twin": (twin, 8),
    "lost acknowledgement": (lose_ack, 7),
    "disk full": (full_disk, 4),
    "slow partition": (delay, 5),
    "broker restart": (broker_restart, 2),
    "clock jump": (clock_jump, 4),
    "stale or wiped store": (stale_store, 8),
    "graceful stop": (stop, 4),
}
