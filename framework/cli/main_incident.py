"""The commands that take a task home: its inputs, state and code in one file, and a run of that file."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from grete.cli.options import AsJson, Directory, JobName, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.settings_file import address_of, settings_of


class _PackUnlessNamed(TyperGroup):
    """Takes `grete incident JOB` for `grete incident pack JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command where there is none."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["pack", *args]
        return super().parse_args(ctx, args)


incident_app = typer.Typer(
    cls=_PackUnlessNamed,
    no_args_is_help=True,
    help="Write a task with its inputs and its state into one file, and run it again on any machine.",
)
IncidentPath = Annotated[Path, typer.Argument(metavar="FILE", help="The file that `grete incident JOB` has written.")]


@incident_app.command("pack")
def incident_pack(
    job: JobName,
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
        typer.Option("--output", "-o", help="The file to write. Default: incident-JOB-TASK-CHECKPOINT.zip."),
    ] = None,
    no_values: Annotated[
        bool,
        typer.Option(
            "--no-values",
            help="Write lengths and digests in place of keys, values and headers. Such a file can be shown, not run.",
        ),
    ] = False,
    no_code: Annotated[bool, typer.Option("--no-code", help="Leave the job's code out.")] = False,
    max_mib: Annotated[
        int, typer.Option(min=1, max=2048, help="At most this much state and input. Larger state is refused.")
    ] = 256,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Write a task's state at a checkpoint, what it has read and decided since, and its code into one file.

    `grete incident JOB` is the same. It only reads the log; the job may run meanwhile.
    """
    from grete.cli.commands.incident import Choice, pack_incident

    choice = Choice(task, at, output, values=not no_values, code=not no_code, bytes_max=max_mib << 20)
    address = address_of(log, kafka_config, settings)
    pack_incident(job, choice, directory, address, settings_of(set, settings))


@incident_app.command("show")
def incident_show(file: IncidentPath, *, json: AsJson = False) -> None:
    """Print what is in the file of an incident. Nothing of it is run."""
    from grete.cli.commands.incident import show_incident

    show_incident(file, as_json=json)


@incident_app.command("run")
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
    from grete.cli.commands.incident import run_incident

    raise typer.Exit(run_incident(file, job, pdb=pdb, calls=calls, as_json=json))
