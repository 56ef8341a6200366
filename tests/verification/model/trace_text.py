"""A way through a world, for people: one line for each thing that happens."""

from collections.abc import Iterator

from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.commit import decode_commit
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from tests.verification.model.process import Row
from tests.verification.model.states import Move, State
from tests.verification.model.system import System
from tests.verification.model.world import World

ENDINGS = {"start": " starts", "zombie": " starts beside it", "crash": " crashes"}


def told(system: System, path: tuple[tuple[State, Move], ...]) -> Iterator[str]:
    """Yield a line for each move."""
    for number, (state, move) in enumerate(path, 1):
        yield f"{number:3}. {_line(system, state, move)}"


def _line(system: System, state: State, move: Move) -> str:
    world = system.world
    if move.kind == "late":
        index, rows = system.dead.values[state[-1]][move.task]
        return f"late, from a dead process: {_put(system, state, index, rows[0])}"
    name = world.wirings[move.task].name
    task = system.task(state, move.task)
    if move.kind in ("start", "zombie"):
        return f"{name}#{task.starts + 1}{ENDINGS[move.kind]}{' on another host' if move.what else ''}"
    face = system.faces[task.processes[move.one]]
    name = f"{name}#{face.number}"
    if move.kind == "crash":
        unsent = sum(1 for _ in face.heads)
        return f"{name} crashes" + (f", with messages to {unsent} partition(s) unsent" if unsent else "")
    if move.kind == "take":
        return f"{name} processes its record {world.origins(move.task)[face.external].decode()}"
    if move.kind == "tick":
        return f"{name} closes checkpoint {move.what}: its timer"
    if move.kind == "send":
        head = next(row for index, row, _ in face.heads if index == move.what)
        return f"{name} → {_put(system, state, move.what, head)}"
    offset = dict(face.positions)[move.what]
    row = system.partition(state, move.what)[offset]
    return f"{name} reads {world.partitions[move.what]} offset {offset}: {said(world, row)}"


def _put(system: System, state: State, index: int, row: int) -> str:
    partition, offset = system.world.partitions[index], len(system.logs.values[state[index]])
    return f"{partition} offset {offset}: {said(system.world, system.rows.values[row])}"


def said(world: World, row: Row) -> str:
    """Return the content of a message, as text."""
    try:
        kind, producer, generation, checkpoint_id, seq = decode_header(row.value)
    except DecodeError:
        return _said_to_itself(row)
    name = world.wirings[world.task_of(producer)].name
    if kind is MessageType.FRAME:
        records = ", ".join((value or b"").decode() for value in decode_columns(row.value).values)
        return f"record {records}, seq {seq} of generation {generation}, checkpoint id {checkpoint_id}"
    if kind is MessageType.MARKER:
        return f"{name}'s marker {checkpoint_id}, generation {generation}, next seq {seq}"
    return f"{name} restored checkpoint {checkpoint_id} as generation {generation}, next seq {seq}"


def _said_to_itself(row: Row) -> str:
    header = decode_changelog_header(row.value)
    what = header.type.name.lower()
    if header.type is ChangelogType.COMMIT:
        records = ", ".join(step.value.decode() for step in (row.witness.steps if row.witness else ()))
        what += f" of checkpoint {decode_commit(row.value).checkpoint_id} with [{records}]"
    return f"{what}, generation {header.generation}"
