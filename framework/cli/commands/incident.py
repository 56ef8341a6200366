"""`grete incident`: one task in one file, shown, and run again."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from grete.api.jobs.job import Job
from grete.cli.incident_report import debug, row_of_run, tell_run
from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.options import AsJson, path_named
from grete.cli.output.progress import Screen, counted
from grete.cli.output.reading import print_json
from grete.cli.output.tables import print_table
from grete.errors import ConfigError, ExitCode
from grete.job.loader import load_job
from grete.job.metadata import pinned_settings
from grete.logs.address import read_options
from grete.replay.incident.file import EndLine, IncidentFile, Manifest, write
from grete.replay.incident.pack import PackRequest, pack, wiring_named
from grete.replay.incident.run import IncidentRun, check_runnable
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.shown import printable

LOG_BYTES = 1 << 20  # of the end of a worker's log


class _PackUnlessNamed(TyperGroup):
    """Takes `grete incident JOB` for `grete incident pack JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command where there is none."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["pack", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    add_completion=False,
    cls=_PackUnlessNamed,
    no_args_is_help=True,
    help="Write a task with its inputs and its state into one file, and run it again on any machine.",
)
IncidentPath = Annotated[
    Path, typer.Argument(parser=path_named, metavar="FILE", help="The file that `grete incident JOB` has written.")
]


# --- Pack -------------------------------------------------------------------------------------------------------------


@job_command(app, "pack")
def incident_pack(
    named: NamedJob,
    *,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="STAGE-PARTITION",
            help="The task. Default: the one that failed last, by the logs of the job's workers; or the only one.",
        ),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(metavar="CHECKPOINT", help="The checkpoint of the task to begin from. Default: its newest."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            parser=path_named,
            metavar="PATH",
            help="The file to write. Default: incident-JOB-TASK-CHECKPOINT.zip.",
        ),
    ] = None,
    no_values: Annotated[
        bool,
        typer.Option(
            "--no-values",
            help="Write lengths and digests in place of keys, values and headers, as with another show_records than "
            "all. Such a file can be shown, not run.",
        ),
    ] = False,
    no_code: Annotated[bool, typer.Option("--no-code", help="Leave the job's code out.")] = False,
    max_mib: Annotated[
        int, typer.Option(min=1, max=2048, help="At most this much state and input. Larger state is refused.")
    ] = 256,
) -> None:
    """Write a task's state at a checkpoint, what it has read and decided since, and its code into one file.

    `grete incident JOB` is the same. It only reads the log; the job may run meanwhile.
    """
    request = PackRequest(
        reference=named.reference,
        checkpoint_id=at,
        bytes_max=max_mib << 20,
        values=not no_values and named.settings.show_records == "all",
        code=not no_code,
        settings=named.settings,
        log=named.address.url,
        options={} if named.address.config is None else read_options(named.address.config),
        error=None,
    )
    _pack(named, request, task, output)


def _pack(named: NamedJob, request: PackRequest, task: str | None, output: Path | None) -> None:
    with named.read() as (job, log):
        errors = _errors(job, named.place(job, make=False).directory / "logs")
        wiring = wiring_named(job, task or _task_of(job, errors))
        settings = pinned_settings(job, log, named.settings)
        with Screen(Console(stderr=True)) as screen:
            wanted = request._replace(settings=settings, error=errors.get(wiring.name))
            manifest, parts = pack(job, log, wiring, wanted, screen.bar)
    name = f"incident-{job.name}-{wiring.name}-{manifest.at.checkpoint_id}.zip"
    path = Path(name) if output is None else output
    write(path, manifest, parts)
    records = sum(each.rows for each in manifest.inputs)
    behind = counted(records, "input message")
    print(f"{path}: {wiring.name} at checkpoint {manifest.at.checkpoint_id}, {behind} behind it")
    for each in (*manifest.inputs, manifest.changelog):
        if each.cut:
            print(f"{each.at}: cut at offset {each.upto} of {each.end}: --max-mib takes more")
    held = "keys and values of records and state, readable to all who get it"
    if not request.values:
        held = "lengths and digests in place of keys and values; a guess cannot be checked by them"
    print(f"it holds {held}")
    print(f"grete incident {'run' if request.values else 'show'} {path}")


def _task_of(job: Job, errors: dict[str, EndLine]) -> str:
    """Return the task that is meant if none is named. Raises ConfigError naming them all."""
    names = [wiring.name for wiring in all_wirings(job)]
    failed = max(errors, key=lambda name: errors[name].timestamp, default=None)
    if failed is None and len(names) > 1:
        raise ConfigError(
            f"job {job.name!r} has {len(names)} tasks, and no worker's log here says which one has failed: name it by "
            f"--task: {', '.join(names)}"
        )
    return names[0] if failed is None else failed


def _errors(job: Job, logs: Path) -> dict[str, EndLine]:
    """Return task → the last line of its worker's log that says why it ended."""
    found: dict[str, EndLine] = {}
    names = {wiring.name for wiring in all_wirings(job)}
    for path in sorted(logs.glob("worker-*.log")):
        number = path.stem.removeprefix("worker-")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        for line in lines:
            try:
                said = msgspec.json.decode(line, type=EndLine)
            except msgspec.MsgspecError:
                continue  # what the job has printed
            name = said.task or f"{said.stage}-{number}"
            if said.level == "ERROR" and said.error is not None and name in names:
                found[name] = said
    return found


# --- Show -------------------------------------------------------------------------------------------------------------


@app.command("show")
def incident_show(file: IncidentPath, *, json: AsJson = False) -> None:
    """Print what is in the file of an incident. Nothing of it is run."""
    packed = IncidentFile(file)
    manifest = packed.manifest
    if json:
        print_json(msgspec.to_builtins(manifest))
        return
    with packed.believed():
        told = _told(manifest)
    for name, value in told.items():
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
        told["error"] = manifest.error.error or manifest.error.event
    return told


# --- Run --------------------------------------------------------------------------------------------------------------


@app.command("run")
def incident_run(
    file: IncidentPath,
    *,
    job: Annotated[
        str | None,
        typer.Option(metavar="JOB", help="Run this code, a module or a file, in place of that in the file."),
    ] = None,
    pdb: Annotated[bool, typer.Option("--pdb", help="Open the debugger where the task's code has raised.")] = False,
    calls: Annotated[
        bool, typer.Option("--calls", help="Make the calls whose results the file does not hold. They reach services.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Run the task of an incident again in memory: outputs, error, and what came out otherwise than in the log.

    It runs the code in the file: run only files of people whose code you would run. Exit 1 if the task has failed, or
    is deterministic and made something else.
    """
    packed = IncidentFile(file)
    check_runnable(packed)
    with _code(packed, job) as loaded:
        with packed.believed():
            ran = IncidentRun(packed, loaded, calls=calls).run()
        if json:
            print_json(row_of_run(packed, ran))
        else:
            tell_run(packed, ran)
        if pdb:
            debug(ran)
    differs = any(each.difference is not None for each in ran.outputs if each.numbered) or bool(ran.differences)
    wrong = differs and packed.manifest.mode == "deterministic"
    raise typer.Exit(ExitCode.FAILED if ran.error is not None or wrong else ExitCode.DONE)


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
