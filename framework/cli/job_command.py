"""Declares the commands of a job: each has JOB, --directory, and the options of log and settings."""

import inspect
from collections.abc import Callable
from functools import partial
from inspect import Parameter
from typing import Any, TypeVar

import typer

from grete.cli.job_target import NamedJob
from grete.cli.options import Directory, JobName, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.settings_file import address_of, settings_of

Command = TypeVar("Command", bound=Callable[..., Any])

_JOB = Parameter("job", Parameter.POSITIONAL_OR_KEYWORD, annotation=JobName)
_SHARED = {"directory": Directory, "log": LogOption, "kafka_config": KafkaConfig, "settings": SettingsPath, "set": Set}


def job_command(app: typer.Typer, name: str | None = None, *, without: str = "") -> Callable[[Command], Command]:
    """Return a decorator that declares a command. ``name``: None: that of the function.

    The function takes a NamedJob and the options of this command. A parameter that is a NamedTuple stands for its
    fields: options that several commands have. ``without``: one of the shared options that means nothing to it.
    The function returns the exit code; None: 0.
    """

    def declare(function: Command) -> Command:
        signature = inspect.signature(function)
        _, *own = signature.parameters.values()
        groups = {each.name: each.annotation for each in own if hasattr(each.annotation, "_fields")}
        shared = [_option(each, annotation, None) for each, annotation in _SHARED.items() if each != without]
        parameters = [_JOB, *(one for each in own for one in _expanded(each, groups)), *shared]

        def command(job: Any, log: Any, kafka_config: Any, settings: Any, **options: Any) -> None:
            read_settings = partial(settings_of, options.pop("set", None), settings)
            directory, address = options.pop("directory", None), address_of(log, kafka_config, settings)
            for each, group in groups.items():
                options[each] = group(*(options.pop(field) for field in group._fields))
            if code := function(NamedJob(job, directory, address, read_settings), **options):
                raise typer.Exit(code)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # what typer reads
        app.command(name)(command)
        return function

    return declare


def _expanded(parameter: Parameter, groups: dict[str, Any]) -> list[Parameter]:
    """Return the options that a parameter of a command stands for."""
    group = groups.get(parameter.name)
    if group is None:
        return [parameter]
    defaults, types = group(), inspect.get_annotations(group)
    return [_option(field, types[field], getattr(defaults, field)) for field in group._fields]


def _option(name: str, annotation: Any, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
