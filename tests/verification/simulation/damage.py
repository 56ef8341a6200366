"""Faults that no protocol survives: a log that loses or changes what it has acknowledged. To halt is right then.

What the log's own checksums hold (headers, markers, commits) is left alone: Kafka has a CRC in each batch.
"""

from grete.protocol.changelog import ChangelogType, InputDecision
from grete.protocol.changelog_position import decode_changelog_position
from grete.protocol.envelope import HEADER_SIZE, MessageType, decode_header
from grete.protocol.ids import TopicPartition
from grete.stores.memory import MemoryDisk
from tests.verification.simulation.faulty_world import FaultyWorld, Rand
from tests.verification.simulation.logical_checks import LogicalChecker
from tests.verification.simulation.process import Process
from tests.verification.simulation.reference import LogicalHistory

_DATA_AT = 20  # of a data message: flips stand behind its header


def truncated_stream(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Lose the last messages of a stream."""
    streams = [p for wiring in sim.plan.wirings.values() for _, p in wiring.channels if sim.log.partition(p).rows]
    if not streams:
        return ""
    partition = streams[int(rand() * len(streams))]
    rows = sim.log.partition(partition).rows
    end = sim.log.partition(partition).end - 1 - int(rand() * min(len(rows), 12))
    if isinstance(sim.checker, LogicalChecker):
        sim.checker.loses(partition, end)
    count = sim.log.truncate(partition, end)
    return f"{partition} loses {count} messages"


def truncated_changelog(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Lose the last messages of a changelog, a commit that its task's store points to among them.

    Without that store nothing is left to show that anything was lost: so no other host and no other process knows it.
    """
    changelog_position = target.host.disk.changelog_position
    into = sim.log.partition(target.wiring.changelog)
    if (
        target.restoring
        or changelog_position is None
        or decode_changelog_position(changelog_position).offset <= into.start
    ):
        return ""
    offset = decode_changelog_position(changelog_position).offset
    others = [p for p in sim.population.all if p.task == target.task and p is not target]
    for process in others:
        sim.population.kill(process, "goes with the damage", restart=False)
    sim.log.drop_queues(target.wiring.changelog)
    for host in sim.population.hosts[target.task]:
        host.in_use = True
    end = into.start + 1 + int(rand() * (offset - into.start))
    count = sim.log.truncate(target.wiring.changelog, end)
    sim.checker.cut.add(target.task)
    if rand() < 0.5:
        sim.population.kill(target, "dies with it")
    return f"{target.wiring.changelog} loses {count} messages"


def emptied_changelog(sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Lose all of a changelog, as a new disk of a broker does, and all stores made of it; its streams know of it."""
    wiring = target.wiring
    into = sim.log.partition(wiring.changelog)
    sent = [row for p in wiring.outputs for row in sim.log.partition(p).rows if _is_of(wiring.producer, row.value)]
    if into.start > 0 or not sent:
        return ""
    _kill_all(sim, target)
    for host in sim.population.hosts[target.task]:
        host.replace(MemoryDisk())
        host.backup = None
    sim.checker.cut.add(target.task)
    sim.must_halt.add(target.task)
    return f"{wiring.changelog} loses all {sim.log.truncate(wiring.changelog, 0)} messages"


def _is_of(producer: int, message: bytes | None) -> bool:
    return decode_header(message or b"").producer == producer


def flipped_bit_in_frame(sim: FaultyWorld, _target: Process, rand: Rand) -> str:
    """Change a bit in the records of a frame."""
    streams = {p for wiring in sim.plan.wirings.values() for _, p in wiring.channels}
    return _flip(sim, sorted(streams), MessageType.FRAME, HEADER_SIZE, rand)


def flipped_bit_in_data(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Change a bit in the keys and values of a changelog."""
    return _flip(sim, [target.wiring.changelog], ChangelogType.DATA, _DATA_AT, rand)


def thinned_input(sim: FaultyWorld, target: Process, rand: Rand) -> str:
    """Remove records that a source took in and has not committed, as compaction does; the source dies before (D2)."""
    history = sim.checker.histories[target.task]
    if not isinstance(history, LogicalHistory):
        return ""
    committed = history.offsets.get(history.checkpoint_id, -1)
    taken = [d for offset, d in history.decided if offset > committed and isinstance(d, InputDecision)]
    if not taken:
        return ""
    decision = taken[int(rand() * len(taken))]
    _kill_all(sim, target)
    rows = sim.log.partition(TopicPartition(decision.topic, decision.partition)).rows
    at = next(index for index, row in enumerate(rows) if row.offset == decision.first_offset)
    gone = [index for index in range(at, at + decision.records) if rand() < 0.5] or [at + decision.records - 1]
    for index in reversed(gone):
        del rows[index]
    sim.must_halt.add(target.task)
    return f"{decision.topic}[{decision.partition}] loses {len(gone)} records from offset {decision.first_offset} on"


def other_outputs(sim: FaultyWorld, target: Process, _rand: Rand) -> str:
    """Let a sink make other outputs of the same input from now on; some are visible that no commit holds (D5)."""
    checker = sim.checker
    visible = checker.visible_uncommitted(target.task) if isinstance(checker, LogicalChecker) else 0
    if visible == 0:
        return ""
    _kill_all(sim, target)
    sim.around.changed.add(target.task)
    sim.must_halt.add(target.task)
    return f"{target.name}, {visible} of its outputs are visible and not committed"


def _kill_all(sim: FaultyWorld, target: Process) -> None:
    """Kill every process of a task, one of which is started again; what they have sent to its changelog is lost."""
    for process in [p for p in sim.population.all if p.task == target.task and p is not target]:
        sim.population.kill(process, "goes with the damage", restart=False)
    sim.population.kill(target, "dies before the damage")
    sim.log.drop_queues(target.wiring.changelog)


def _flip(sim: FaultyWorld, partitions: list[TopicPartition], kind: int, start: int, rand: Rand) -> str:
    found = [
        (partition, index)
        for partition in partitions
        for index, row in enumerate(sim.log.partition(partition).rows)
        if row.value and row.value[0] & 15 == kind
    ]
    if not found:
        return ""
    partition, index = found[-1 - int(rand() * rand() * len(found))]  # rather a late one: it may be read yet
    rows = sim.log.partition(partition).rows
    offset, value = rows[index].offset, rows[index].value
    assert value is not None
    at = start + int(rand() * (len(value) - start))
    flipped = value[:at] + bytes((value[at] ^ 1 << int(rand() * 8),)) + value[at + 1 :]
    rows[index] = rows[index]._replace(value=flipped)
    return f"{partition} offset {offset} byte {at}"
