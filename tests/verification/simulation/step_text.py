"""Text of messages, events and actions: one line for each, in the words of the glossary, for scenarios and traces."""

from collections.abc import Callable, Sequence
from typing import Any

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.core.deterministic.task import DeterministicCore
from grete.protocol.changelog import (
    ChangelogType,
    decode_changelog_header,
    decode_claim,
    decode_data,
    decode_input_decision,
    decode_output_release,
    decode_time_lease,
)
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.control import (
    decode_joint_progress,
    decode_marker,
    decode_progress,
    decode_rollback_marker,
    decode_watermark,
)
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.protocol.notes import IdleNote, decode_note

TaskName = Callable[[int], str]  # producer id → name of the task
NO_TEXT = (on.Processed, on.Acked, on.OutputFrames, on.DataWritten, on.Applied, on.ChangelogEnd, on.InputRead, on.Ran)

PLAIN: dict[type, str] = {
    on.Tick: "time passes",
    on.CheckpointObserved: "is told which checkpoints others have closed",
    on.Stop: "is asked to stop",
    on.InputGone: "finds an input trimmed behind its position, or other outputs than before",
}


def event_text(event: on.Event, name: TaskName) -> str | None:
    """Return the line of an event; None for an answer that says only that an action is done."""
    if isinstance(event, NO_TEXT):
        return None
    if type(event) in PLAIN:
        return PLAIN[type(event)]
    if isinstance(event, on.Messages):  # the first of them
        event = on.Message(event.partition, event.rows[0].offset, 0, event.rows[0].value or b"")
    match event:
        case on.Start(changelog_position=changelog_position):
            return "starts" + (
                "" if changelog_position is None else f", its store is at changelog offset {changelog_position.offset}"
            )
        case on.Message(partition, offset, _, value):
            return f"reads {partition} @{offset}: {message_text(value, name)}"
        case on.ChangelogRow(offset, _, value):
            return f"reads its changelog @{offset}: {message_text(value, name)}"
        case on.ChangelogAppended(offset, fenced=fenced):
            return "the log refuses it: a higher generation has claimed" if fenced else f"appended @{offset}"
        case on.ExternalProcessed(partition, next_offset, ended):
            return f"processed {partition} up to offset {next_offset}" + (", its end" if ended else "")
        case on.ExternalBatch(partition, first_offset, next_offset):
            return f"reads {partition} from offset {first_offset} up to {next_offset}"
        case on.InputIdle(partition):
            return f"finds {partition} idle"
        case _:
            return str(event)


def action_text(action: do.Action, name: TaskName, spilled: Callable[[int], bytes] | None = None) -> str:
    """Return the line of an action; ``spilled`` gives the frame that lies on disk under a key."""
    if isinstance(action, do.Process) and action.value is None and spilled is not None:
        return f"process {records_text(spilled(action.key), action.skip)} from disk"
    return ACTIONS[type(action)](action, name)


def _append_text(action: do.AppendChangelog, name: TaskName) -> str:
    return f"append to the changelog: {'; '.join(message_text(each, name) for each in (*action.before, action.value))}"


def _merged_text(action: do.ProcessRecords) -> str:
    marks = sum(isinstance(batch, do.MergedWatermarks) for batch in action.batches)
    records = sum(len(batch.keys) for batch in action.batches if not isinstance(batch, do.MergedWatermarks))
    return f"{records} records" + (f" and {marks} times of watermarks" if marks else "")


def _external_text(action: do.ProcessExternal, _: TaskName) -> str:
    again = ", once more" if action.replay else ""
    return f"process {action.count} from {action.partition} @{action.first_offset} at {action.first_t} µs{again}"


ACTIONS: dict[type[do.Action], Callable[[Any, TaskName], str]] = {
    do.ReadChangelog: lambda a, _: f"read the changelog from offset {a.offset}",
    do.FindOutcome: lambda a, _: f"look up the outcome of the bulk write {a.bulk_write_id}",
    do.WipeStore: lambda _, __: "wipe the store",
    do.ApplySegment: lambda a, _: f"restore the data of the commit @{a.offset}",
    do.WriteChangelogPosition: lambda a, _: f"write changelog position {a.changelog_position.offset} to the store",
    do.AppendChangelog: _append_text,
    do.Send: lambda a, name: f"send to {a.partition}: {message_text(a.value, name)}",
    do.Produce: lambda a, _: f"send {a.count} of the outputs that wait to topics outside of the job",
    do.Announce: lambda a, _: f"announce progress to {a.t} µs",
    do.ReleaseToSinks: lambda a, _: f"let outputs up to time {a.t} µs go to files",
    do.Seek: lambda a, _: f"read {a.partition} from offset {a.offset}",
    do.Spill: lambda a, _: f"move to disk: {records_text(a.value)}",
    do.DropSpilled: lambda _, __: "drop rolled-back frames from disk",
    do.Process: lambda a, _: f"process {records_text(a.value, a.skip)}",
    do.ProcessRecords: lambda a, _: f"process {_merged_text(a)}, time reaches {a.upto} µs",
    do.ProcessIdle: lambda a, _: f"take {a.partition} for idle from {a.t} µs on",
    do.ProcessExternal: _external_text,
    do.FlushOutputs: lambda _, __: "flush the outputs",
    do.Freeze: lambda a, _: f"freeze checkpoint {a.checkpoint_id}",
    do.FreezePart: lambda _, __: "freeze what is dirty so far, ahead of its checkpoint",
    do.WriteData: lambda _, __: "send the changed keys to the changelog",
    do.ApplyFrozen: lambda a, _: (
        f"write checkpoint {a.changelog_position.checkpoint_id} and changelog position {a.changelog_position.offset} "
        f"to the store"
    ),
    do.DropOpen: lambda _, __: "drop the open write batch",
    do.ClearSpill: lambda _, __: "empty the early buffer on disk",
    do.Trim: lambda a, _: f"trim {a.partition} before offset {a.offset}",
    do.Committed: lambda a, _: f"checkpoint {a.checkpoint_id} is committed",
    do.Exit: lambda a, _: f"exit with 0: {a.reason}",
}


def tell_steps(core: TaskCore | DeterministicCore, process: str, name: TaskName, tell: Callable[[str], None]) -> None:
    """Give ``tell`` a line for each event that a core gets from now on, and for each action that it asks for."""
    step = core.step

    def told(event: on.Event) -> Sequence[do.Action]:
        actions = step(event)
        text = event_text(event, name)
        if text is not None and (actions or not isinstance(event, on.Tick)):
            tell(f"{process} < {text}")
        for action in actions:
            tell(f"{process} > {action_text(action, name)}")
        return actions

    setattr(core, "step", told)  # noqa: B010  # mypy does not let a method be assigned


def message_text(value: bytes, name: TaskName) -> str:
    """Return the content of a message of a stream or a changelog, as text."""
    try:
        header = decode_header(value)
    except DecodeError:
        return _changelog_text(value, name)
    who = f"{name(header.producer)}, generation {header.generation}"
    match header.type:
        case MessageType.FRAME:
            seqs = _seqs(header, len(decode_columns(value).values))
            return f"{records_text(value)} of checkpoint {header.checkpoint_id} ({who}, {seqs})"
        case MessageType.MARKER:
            ended = ", inputs ended" if decode_marker(value).at_end else ""
            return f"checkpoint marker {header.checkpoint_id} ({who}, next seq {header.seq}{ended})"
        case MessageType.ROLLBACK_MARKER:
            history = history_text(decode_rollback_marker(value).rollback_history)
            return f"rollback marker to {header.checkpoint_id} ({who}, next seq {header.seq}, history {history})"
        case MessageType.WATERMARK:
            idle = ", idle" if decode_watermark(value).idle else ""
            return f"{records_text(value)} of checkpoint {header.checkpoint_id} ({who}, next seq {header.seq}{idle})"
        case MessageType.PROGRESS:
            return f"progress to {decode_progress(value).t} µs ({who}, next seq {header.seq})"
        case MessageType.JOINT_PROGRESS:
            told = (f"{name(h.producer)} to {t} µs (next seq {h.seq})" for h, t, _ in decode_joint_progress(value))
            return f"progress of {', '.join(told)}"


def records_text(frame: bytes | None, skip: int = 0) -> str:
    """Return the values of a frame's records, the first ``skip`` left out, or what a watermark says."""
    if frame is None:
        return "a frame from disk"
    if decode_header(frame).type is MessageType.WATERMARK:
        return f"watermark {decode_watermark(frame).watermarks[-1]}"
    return " ".join((value or b"null").decode(errors="replace") for value in decode_columns(frame).values[skip:])


def history_text(history: Sequence[RollbackEntry]) -> str:
    """Return a rollback history as generation→checkpoint pairs."""
    return " ".join(f"{generation}→{restored}" for generation, restored in history) or "empty"


def _seqs(header: Header, count: int) -> str:
    return f"seq {header.seq}" if count == 1 else f"seq {header.seq} to {header.seq + count - 1}"


def _changelog_text(value: bytes, name: TaskName) -> str:
    header = decode_changelog_header(value)
    by = f"generation {header.generation}"
    match header.type:
        case ChangelogType.CLAIM:
            return f"claim of {by} (process {decode_claim(value).pid})"
        case ChangelogType.DATA:
            data = decode_data(value)
            keys = " ".join(key.decode(errors="replace") for key in data.keys)
            return f"data of {by}: {keys}"
        case ChangelogType.COMMIT:
            return f"commit of {by}: {_commit_text(decode_commit(value), name)}"
        case ChangelogType.INPUT_DECISION:
            decision = decode_input_decision(value)
            return f"input decision of {by}: {decision.records} from {decision.topic} @{decision.first_offset}"
        case ChangelogType.NOTE:
            note = decode_note(value)
            assert isinstance(note, IdleNote), "no task of the simulator makes calls that are recorded"
            return f"note of {by}: {note.topic}[{note.partition}] is idle at {note.t} µs"
        case ChangelogType.TIME_LEASE:
            return f"time lease of {by}: up to {decode_time_lease(value).t} µs"
        case ChangelogType.OUTPUT_RELEASE:
            seqs = decode_output_release(value).seqs
            return f"output release of {by}: {', '.join(f'{partition} up to seq {seq}' for partition, seq in seqs)}"
        case _:
            return f"{header.type.name.lower()} of {by}"


def _commit_text(commit: Commit, name: TaskName) -> str:
    parts = [f"checkpoint {commit.checkpoint_id}"]
    for entry in commit.inputs:
        seqs = ", ".join(f"{name(c.producer)} up to seq {c.seq}" for c in entry.channels)
        parts.append(f"{TopicPartition(entry.topic, entry.partition)} from offset {entry.resume} ({seqs})")
    parts += [f"{e.topic}[{e.partition}] from offset {e.offset}" for e in commit.external]
    return "; ".join(parts)
