"""`grete incident`: one task in one file, shown, and run again."""

import json
import pdb as debugger  # noqa: T100  # it is asked for, by --pdb
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from grete.api.job import Job
from grete.cli.job_target import existing_log
from grete.cli.progress import Screen, counted
from grete.cli.reading import print_json
from grete.cli.tables import print_table
from grete.errors import ConfigError, ExitCode, FrameworkError
from grete.execution.user_traceback import in_grete, user_traceback
from grete.job.directory import directory_of
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
from grete.logs.address import LogAddress, read_options
from grete.ports import LogRow
from grete.protocol.envelope import decode_header
from grete.replay.incident.compared import Sent, in_stream, in_topic
from grete.replay.incident.file import IncidentFile, Manifest, PackedRows, write
from grete.replay.incident.pack import PackRequest, pack, wiring_named
from grete.replay.incident.run import IncidentRun, TaskRun, check_runnable, halting_row
from grete.settings import Settings
from grete.state.commits import all_wirings
from grete.state.shown import printable

SHOWN = 10  # outputs and differences that are printed of each kind
LOG_BYTES = 1 << 20  # of the end of a worker's log


class Choice(NamedTuple):
    """The options of a command line."""

    task: str | None
    checkpoint_id: int | None
    output: Path | None
    values: bool
    code: bool
    bytes_max: int


# --- Pack -------------------------------------------------------------------------------------------------------------


def pack_incident(
    reference: str, choice: Choice, directory: Path | None, address: LogAddress, settings: Settings
) -> None:
    """Write the file of a task's incident, and say what to do with it."""
    with existing_log(reference, directory, address) as (job, log):
        errors = _errors(job, directory_of(job, directory, address) / "logs")
        wiring = wiring_named(job, choice.task or _task_of(job, errors))
        wanted = PackRequest(
            reference=reference,
            checkpoint_id=choice.checkpoint_id,
            bytes_max=choice.bytes_max,
            values=choice.values,
            code=choice.code,
            settings=pinned_settings(job, log, settings),
            log=address.url,
            options={} if address.config is None else read_options(address.config),
            error=errors.get(wiring.name),
        )
        with Screen(Console(stderr=True)) as screen:
            manifest, parts = pack(job, log, wiring, wanted, screen.bar)
    name = f"incident-{job.name}-{wiring.name}-{manifest.at.checkpoint_id}.zip"
    path = Path(name) if choice.output is None else choice.output
    write(path, manifest, parts)
    records = sum(each.rows for each in manifest.inputs)
    behind = counted(records, "input message")
    print(f"{path}: {wiring.name} at checkpoint {manifest.at.checkpoint_id}, {behind} behind it")
    for each in (*manifest.inputs, manifest.changelog):
        if each.cut:
            print(f"{each.at}: cut at offset {each.upto} of {each.end}: --max-mib takes more")
    held = "keys and values of records and state, readable to all who get it"
    held = (
        held if choice.values else "lengths and digests in place of keys and values; a guess cannot be checked by them"
    )
    print(f"it holds {held}")
    print(f"grete incident {'run' if choice.values else 'show'} {path}")


def _task_of(job: Job, errors: dict[str, dict[str, Any]]) -> str:
    """Return the task that is meant if none is named. Raises ConfigError naming them all."""
    names = [wiring.name for wiring in all_wirings(job)]
    failed = max(errors, key=lambda name: str(errors[name].get("timestamp", "")), default=None)
    if failed is None and len(names) > 1:
        raise ConfigError(
            f"job {job.name!r} has {len(names)} tasks, and no worker's log here says which one has failed: name it by "
            f"--task: {', '.join(names)}"
        )
    return names[0] if failed is None else failed


def _errors(job: Job, logs: Path) -> dict[str, dict[str, Any]]:
    """Return task → the last line of its worker's log that says why it ended."""
    found: dict[str, dict[str, Any]] = {}
    names = {wiring.name for wiring in all_wirings(job)}
    for path in sorted(logs.glob("worker-*.log")):
        number = path.stem.removeprefix("worker-")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # what the job has printed
            if not isinstance(said, dict) or said.get("level") != "ERROR" or "error" not in said:
                continue
            name = said.get("task") or f"{said.get('stage')}-{number}"
            if name in names:
                found[name] = said
    return found


# --- Show -------------------------------------------------------------------------------------------------------------


def show_incident(path: Path, *, as_json: bool) -> None:
    """Print the manifest, as tables or as JSON."""
    manifest = IncidentFile(path).manifest
    if as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    for name, value in _told(manifest).items():
        print(printable(f"{name:<12} {value}"))
    print()
    table = Table("what", "from", "up to", "end", "messages", "bytes", box=None)
    for store, (count, size) in sorted(manifest.at.stores.items()):
        table.add_row(printable(f"store {store}"), "", "", "", f"{count:,}", f"{size:,}")
    parts = [("input", manifest.inputs), ("changelog", [manifest.changelog]), ("output", manifest.outputs)]
    for what, rows in parts:
        for each in rows:
            cells = each.begin, each.upto, each.end, each.rows, each.bytes
            table.add_row(printable(f"{what} {each.at}"), *(f"{cell:,}" for cell in cells))
    print_table(Console(), table)


def _told(manifest: Manifest) -> dict[str, str]:
    at, versions = manifest.at, manifest.versions
    told = {
        "job": f"{manifest.job} ({manifest.reference})",
        "task": f"{manifest.task}, {manifest.mode}",
        "checkpoint": f"{at.checkpoint_id}, the newest is {manifest.last_checkpoint_id}",
        "made": manifest.made,
        "log": manifest.log,
        "grete": f"{versions.get('grete', '?')}, Python {versions['python']}, {versions['system']}",
        "values": "yes" if manifest.values else "no: lengths and digests",
        "code": "no" if manifest.code is None else counted(len(manifest.code.files), "file"),
    }
    changed = {name: value for name, value in manifest.settings.items() if value != getattr(Settings(), name, None)}
    told["settings"] = ", ".join(f"{name}={value}" for name, value in changed.items()) or "all at their defaults"
    if manifest.error is not None:
        told["error"] = str(manifest.error.get("error") or manifest.error.get("event"))
    return told


# --- Run --------------------------------------------------------------------------------------------------------------


def run_incident(path: Path, reference: str | None, *, pdb: bool, calls: bool, as_json: bool) -> ExitCode:
    """Run the task, print what came out; return FAILED if it failed, or a deterministic one made something else."""
    file = IncidentFile(path)
    check_runnable(file)
    with _code(file, reference) as job:
        with file.believed():
            ran = IncidentRun(file, job, calls=calls).run()
        if as_json:
            print_json(_plain(file, ran))
        else:
            _print(file, ran)
        if pdb:
            _debug(ran)
    differs = any(each.difference is not None for each in ran.outputs if each.numbered) or bool(ran.differences)
    wrong = differs and file.manifest.mode == "deterministic"
    return ExitCode.FAILED if ran.error is not None or wrong else ExitCode.DONE


@contextmanager
def _code(file: IncidentFile, reference: str | None) -> Iterator[Job]:
    """Yield the job, of the code in the file unless another one is given."""
    with tempfile.TemporaryDirectory(prefix="grete-incident-") as folder:
        if reference is None:
            found = file.unpack_code(Path(folder))
            sys.path.append(folder)
        else:
            found = reference
        job = load_job(found)
        if reference is None:
            _require_its_own(Path(folder))
        yield job


def _require_its_own(folder: Path) -> None:
    """Raise ConfigError if code came from elsewhere: the search finds a module that is installed here before ours."""
    for path in sorted(folder.rglob("*.py")):
        names = path.relative_to(folder).with_suffix("").parts
        name = ".".join(names[:-1] if names[-1] == "__init__" else names)
        origin = getattr(sys.modules.get(name), "__file__", None)
        if origin is not None and not Path(origin).resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"module {name} is that of {origin}, and not the incident's: run it in an environment without that "
                "module, or take that code by --job"
            )


def _print(file: IncidentFile, ran: TaskRun) -> None:
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


def _print_sent(sent: list[Sent]) -> None:
    for each in sent[:SHOWN]:
        print(f"  {_shown(each)}")
    if len(sent) > SHOWN:
        print(f"  … and {len(sent) - SHOWN:,} more")


def _shown(sent: Sent) -> str:
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


def _records(rows: PackedRows, row: LogRow) -> Iterator[tuple[str, Sent]]:
    """Yield the record that an error names; of a stream the records of its message, with their numbers."""
    if not rows.stream:
        yield "", in_topic([row], None)[0]
        return
    for sent in in_stream([row], decode_header(row.value or b"").producer)[:SHOWN]:
        yield f", record {sent.seq}", sent


def _plain(file: IncidentFile, ran: TaskRun) -> dict[str, Any]:
    error = ran.error
    told = None if error is None else error.plain() if isinstance(error, FrameworkError) else {"error": str(error)}
    return {
        "task": file.manifest.task,
        "checkpoint_id": file.manifest.at.checkpoint_id,
        "read": {str(at): offset for at, offset in ran.read.items()},
        "outputs": {str(each.partition): len(each.sent) for each in ran.outputs},
        "compared": sum(each.compared for each in ran.outputs),
        "same": sum(each.same for each in ran.outputs),
        "uncommitted": len(ran.uncommitted),
        "state_compared": ran.states,
        "state_different": len(ran.differences),
        "error": told,
        "traceback": None if error is None else user_traceback(error.__cause__ or error),
    }


def _debug(ran: TaskRun) -> None:
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
