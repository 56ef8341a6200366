"""The error that ends a worker: a line of its log, and the report for its supervisor."""

import traceback
from collections.abc import Iterable

from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, Fenced, FrameworkError, Halted, LogAway, StoreCorrupted, TaskError
from grete.execution.records.user_traceback import bare_traceback, user_traceback
from grete.halts import HaltCode
from grete.protocol.report import EndReport, ErrorPlace, Reason
from grete.quoting import named_error, shows_values, value_text
from grete.worker.logs.open_files import is_of_the_disk, out_of
from grete.worker.logs.own_lines import own_logger

logger = own_logger()


def log_end(error: Exception) -> None:
    """Log what ends the worker: one line with its fields for an error of ours, a traceback for any other."""
    logged = error.plain() | {"kind": kind_of(error)} if isinstance(error, FrameworkError) else {}
    match error:
        case Fenced():
            logger.warning("fenced", extra=logged)
        case ConfigError():
            logger.error("halted", extra=logged | {"code": HaltCode.CONFIGURATION.value})
        case Halted(__cause__=FrameworkError() as cause):  # a task that was given up
            trace = user_traceback(cause.__cause__)
            logger.error("halted", extra=logged | {"kind": kind_of(cause), "traceback": trace})
        case Halted():
            logger.error("halted", extra=logged)
        case TaskError():
            logger.error("crashed", extra=logged | {"traceback": user_traceback(error.__cause__)})
        case StoreCorrupted():
            logger.error("store corrupted, wiped: the next start restores", extra=logged)
        case LogAway():
            logger.error("log away", extra=logged)
        case FrameworkError():
            logger.error("crashed", extra=logged | {"cause": value_text(error.__cause__)})
        case OSError() if (text := out_of(error)) is not None:
            logger.error("crashed", extra={"error": text, "kind": type(error).__name__, "cause": repr(error)})
        case _:
            logger.error("crashed by an error that Grete did not foresee", exc_info=error)


def end_report(error: Exception, tasks: Iterable[TaskWiring]) -> EndReport:
    """Return the reason of the process's end, for its supervisor; ``tasks``: those that were here."""
    failed = _cause_of_giving_up(error) or error
    trace = user_traceback(failed.__cause__) if isinstance(failed, TaskError) or failed is not error else None
    match error:
        case Fenced():
            text = f"fenced: {error}"
        case StoreCorrupted():
            text = f"store corrupted, wiped: the next start restores: {error}"
        case FrameworkError():
            text = str(error)
        case OSError() if (room := out_of(error)) is not None:
            text = room
        case _:
            text = f"crashed by an error that Grete did not foresee: {named_error(error)}"
            trace = "".join(traceback.format_exception(error)) if shows_values() else bare_traceback(error)
    return EndReport(
        reason=_reason(error, failed), text=text, code=_code(error), traceback=trace or "", place=place_of(error, tasks)
    )


def _cause_of_giving_up(error: Exception) -> FrameworkError | None:
    """Return by what a task has ended each time before it was given up; None: ``error`` is something else."""
    given_up = isinstance(error, Halted) and error.code is HaltCode.GIVEN_UP
    return error.__cause__ if given_up and isinstance(error.__cause__, FrameworkError) else None


def _reason(error: Exception, failed: Exception) -> Reason:
    """Return the reason of an end; ``failed``: the error, or what has ended a task that was given up."""
    if isinstance(failed, TaskError):
        return "task error"
    if isinstance(failed, StoreCorrupted):
        return "store corrupted"
    if isinstance(error, Halted | ConfigError):
        return "halted"
    if is_of_the_disk(failed):
        return "disk"
    return "log away" if isinstance(failed, LogAway) else "other"


def _code(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return str(HaltCode.CONFIGURATION.value)
    return "" if not isinstance(error, Halted) or error.code is HaltCode.UNNAMED else str(error.code.value)


def place_of(error: Exception, tasks: Iterable[TaskWiring]) -> ErrorPlace:
    """Return the place of an error; ``tasks``: those that were here."""
    if not isinstance(error, FrameworkError):
        return ErrorPlace()
    task = next((each for each in tasks if each.name == error.task), None)
    return ErrorPlace(
        stage=error.stage if task is None else task.stage,
        partition=None if task is None else task.changelog.partition,
        topic=error.topic,
        topic_partition=error.partition,
        offset=error.offset,
        checkpoint_id=error.checkpoint_id,
        setting=error.setting,
    )


def kind_of(error: FrameworkError) -> str:
    """Return the class of an error as framework/errors.py has it: it says what to do."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == FrameworkError.__module__)
