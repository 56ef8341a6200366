"""The log line of the error that ends a worker."""

from grete.errors import ConfigError, Fenced, FrameworkError, Halted, LogAway, StoreCorrupted, TaskError
from grete.execution.user_traceback import user_traceback
from grete.halts import HaltCode
from grete.worker.open_files import out_of
from grete.worker.own_lines import own_logger

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
            logger.error("crashed", extra=logged | {"cause": repr(error.__cause__)})
        case OSError() if (text := out_of(error)) is not None:
            logger.error("crashed", extra={"error": text, "kind": type(error).__name__, "cause": repr(error)})
        case _:
            logger.error("crashed by an error that Grete did not foresee", exc_info=error)


def kind_of(error: FrameworkError) -> str:
    """Return the class of an error as framework/errors.py has it: it says what to do."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == FrameworkError.__module__)
