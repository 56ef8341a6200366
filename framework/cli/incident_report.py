"""The report of an incident that was run again: outputs, error, differences, as text or JSON, and the debugger."""

import pdb as debugger  # noqa: T100  # it is asked for, by --pdb
from collections.abc import Iterator
from itertools import islice
from types import TracebackType

import msgspec

from grete.cli.output.progress import counted
from grete.errors import FrameworkError
from grete.execution.records.user_traceback import in_grete, user_traceback
from grete.ports import LogRow
from grete.replay.incident.file import IncidentFile, PackedRows
from grete.replay.incident.run import TaskRun, halting_row
from grete.replay.recorded import MadeOutput, in_stream, unnumbered
from grete.state.read.shown import printable

SHOWN = 10  # outputs and differences that are printed of each kind


def tell_run(file: IncidentFile, ran: TaskRun) -> None:
    """Print what came out."""
    said = file.manifest
    deterministic = said.mode == "deterministic"
    behind = counted(ran.checkpoints, "checkpoint")
    print(f"{said.task} of job {said.job}: {behind} from {said.at.checkpoint_id} on")
    for each in said.inputs:
        read = ran.read.get(each.at, each.begin)
        print(f"{each.at}: read from offset {each.begin} to {read}{_cut(each)}")
    for found in ran.outputs:
        if not found.sent and not found.compared:
            continue
        print(f"{found.partition}: {counted(len(found.sent), 'output')}; {_same(found.compared, found.same)}")
        _print_sent(found.sent)
        if found.difference is not None:
            was, came = found.difference
            print(f"  first difference: {'not in the log' if was is None else 'in the log: ' + _shown(was)}")
            print(f"                    made again: {'nothing' if came is None else _shown(came)}")
            if not deterministic:
                print("                    the task is in aligned mode, where a run need not give the same")
    if ran.uncommitted:
        print(f"{counted(len(ran.uncommitted), 'output')} not handed over when the error came")
        for partition, sent in ran.uncommitted[:SHOWN]:
            print(f"  {partition}  {_shown(sent)}")
    if ran.states is not None and said.after is not None:
        same = ran.states - len(ran.differences)
        print(f"state at checkpoint {said.after.checkpoint_id}: {_same(ran.states, same)}")
        for store, key, before, now in ran.differences[:SHOWN]:
            print(printable(f"  {store} {key!r:.200}: committed {before!r:.200}, now {now!r:.200}"))
    _print_error(file, ran)


def _cut(rows: PackedRows) -> str:
    return f" (cut at {rows.upto} of {rows.end})" if rows.cut else ""


def _same(compared: int, same: int) -> str:
    return f"{same:,} of {compared:,} are as in the log" if compared else "the log holds none of them to compare"


def _print_sent(sent: list[MadeOutput]) -> None:
    for each in sent[:SHOWN]:
        print(f"  {_shown(each)}")
    if len(sent) > SHOWN:
        print(f"  … and {len(sent) - SHOWN:,} more")


def _shown(sent: MadeOutput) -> str:
    headers = f", headers {sent.headers!r:.200}" if sent.headers else ""
    return printable(f"key {sent.key!r:.200}, value {sent.value!r:.400}, timestamp {sent.timestamp}{headers}")


def _print_error(file: IncidentFile, ran: TaskRun) -> None:
    error = ran.error
    if error is None:
        print("the task has processed all of it without an error")
        return
    print(printable(f"the task failed: {error}"))
    found = halting_row(file, error) if isinstance(error, FrameworkError) else None
    if found is not None:
        rows, row = found
        for number, sent in _records(rows, row):
            print(f"at {rows.at}, offset {row.offset}{number}: {_shown(sent)}")
    traceback = user_traceback(error.__cause__ or error)
    if traceback is not None:
        print(printable(traceback))


def _records(rows: PackedRows, row: LogRow) -> Iterator[tuple[str, MadeOutput]]:
    """Yield the record that an error names; of a stream the records of its message, with their numbers."""
    if not rows.stream:
        yield "", unnumbered(row)
        return
    for records in in_stream([row], rolls_back=False).values():
        for sent in islice(records.values(), SHOWN):
            yield f", record {sent.seq}", sent


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result as JSON has it."""

    task: str
    checkpoint_id: int
    read: dict[str, int]
    outputs: dict[str, int]
    compared: int
    same: int
    uncommitted: int
    state_compared: int | None
    state_different: int
    error: dict[str, str | int] | None
    traceback: str | None


def row_of_run(file: IncidentFile, ran: TaskRun) -> RunRow:
    """Return the result."""
    error = ran.error
    told: dict[str, str | int] | None = None if error is None else {"error": str(error)}
    if isinstance(error, FrameworkError):
        told = error.plain()
    return RunRow(
        task=file.manifest.task,
        checkpoint_id=file.manifest.at.checkpoint_id,
        read={str(at): offset for at, offset in ran.read.items()},
        outputs={str(each.partition): len(each.sent) for each in ran.outputs},
        compared=sum(each.compared for each in ran.outputs),
        same=sum(each.same for each in ran.outputs),
        uncommitted=len(ran.uncommitted),
        state_compared=ran.states,
        state_different=len(ran.differences),
        error=told,
        traceback=None if error is None else user_traceback(error.__cause__ or error),
    )


def debug(ran: TaskRun) -> None:
    """Open the debugger at the last line of the task's own code that ran, if there was an error."""
    if ran.error is None:
        print("no error to look at: put breakpoint() into a copy of the code, and run that with --job")
        return
    cause: BaseException = ran.error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    theirs = _last_of_theirs(cause.__traceback__)
    debugger.post_mortem(cause.__traceback__ if theirs is None else theirs)


def _last_of_theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's last frame on, cut behind it, so that the debugger begins there."""
    found: TracebackType | None = None
    while trace is not None:
        if not in_grete(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    return None if found is None else TracebackType(None, found.tb_frame, found.tb_lasti, found.tb_lineno)
