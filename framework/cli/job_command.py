"""Declares commands: a parameter that is a NamedTuple stands for its fields, options that several commands have."""

import inspect
from collections.abc import Callable
from functools import partial
from inspect import Parameter
from typing import Any, TypeVar

import typer

from grete.cli.job_target import NamedJob
from grete.cli.options import JobName, JobOptions
from grete.cli.settings_file import address_of, settings_of
from grete.quoting import set_shown
from grete.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

_JOB = Parameter("job", Parameter.POSITIONAL_OR_KEYWORD, annotation=JobName)
_OPTIONS = Parameter("given", Parameter.KEYWORD_ONLY, annotation=JobOptions)


def command(app: typer.Typer, name: str | None = None, *, without: str = "") -> Callable[[Command], Command]:
    """Return a decorator that declares a command. ``name``: None: that of the function.

    ``without``: an option of its groups that means nothing to it. The function returns the exit code; None: 0.
    """

    def declare(function: Command) -> Command:
        signature = inspect.signature(function)
        groups = {p.name: p.annotation for p in signature.parameters.values() if hasattr(p.annotation, "_fields")}
        options = [one for each in signature.parameters.values() for one in _options(each, without)]

        def run(**given: Any) -> None:
            for parameter, group in groups.items():
                given[parameter] = group(**{each: given.pop(each) for each in group._fields if each != without})
            if code := function(**given):
                raise typer.Exit(code)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {each.name: each.annotation for each in options}
        run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # what typer reads
        app.command(name)(run)
        return function

    return declare


def job_command(app: typer.Typer, name: str | None = None, *, without: str = "") -> Callable[[Command], Command]:
    """Return a decorator that declares a command of a job, which it gets as a NamedJob, before its own options."""

    def declare(function: Command) -> Command:
        signature = inspect.signature(function)
        _, *own = signature.parameters.values()

        def of_job(job: str, given: JobOptions, **options: Any) -> Any:
            address = address_of(given.log, given.kafka_config, given.settings)
            named = NamedJob(job, given.directory, address, partial(_settings, given))
            return function(named, **options)

        of_job.__name__, of_job.__doc__ = function.__name__, function.__doc__
        of_job.__signature__ = signature.replace(parameters=[_JOB, *own, _OPTIONS])  # type: ignore[attr-defined]  # as above
        command(app, name, without=without)(of_job)
        return function

    return declare


def _settings(given: JobOptions) -> Settings:
    """Return the settings; from then on errors and screens quote of a record what they say. Raises ConfigError."""
    settings = settings_of(given.set, given.settings)
    set_shown(settings.show_records)
    return settings


def _options(parameter: Parameter, without: str) -> list[Parameter]:
    """Return the options that a parameter of a command stands for."""
    group: Any = parameter.annotation
    if not hasattr(group, "_fields"):
        return [parameter]
    defaults, types = group(), inspect.get_annotations(group)
    return [
        Parameter(field, Parameter.KEYWORD_ONLY, default=getattr(defaults, field), annotation=types[field])
        for field in group._fields
        if field != without
    ]
