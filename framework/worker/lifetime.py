"""A worker's life in its process: signals, memory, log lines of its start and end, exit code (C5)."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from framework.errors import (
    ConfigError,
    ExitCode,
    Fenced,
    FrameworkError,
    Halted,
    LogAway,
    StoreCorrupted,
    TaskError,
    exit_code,
)
from framework.execution.user_traceback import user_traceback
from framework.halts import HaltCode
from framework.worker.worker import Worker
from framework.worker.worker_log import Whose

logger = logging.getLogger("grete")


def run_worker(make: Callable[[], Worker], whose: Whose) -> ExitCode:
    """Make and run a worker with signals, logs and exit codes; ``whose`` gets to know which task a line is about.

    A stop that has timed out ends the process here.
    """
    worker: Worker | None = None
    gc.freeze()  # what is imported stays: no collection need look at it
    gc.set_threshold(50_000, 20, 50)  # ours makes no cycles, but thousands of tuples that a checkpoint holds on to
    try:
        worker = made = make()
        whose.task = lambda: made.logs_for

        def on_signal(_signum: int, _frame: FrameType | None) -> None:
            assert worker is not None
            worker.stop()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        signal.signal(signal.SIGUSR1, lambda _signum, _frame: made.drain())  # from a supervisor
        logger.info("worker started", extra={"tasks": [driver.wiring.name for driver in worker.drivers]})
        with worker.watchdog(), worker.blocking_watch():
            code = worker.run()
        logger.info("worker done", extra={"code": code})
    except Exception as error:  # noqa: BLE001  # whatever it is, it decides how the process ends
        log_end(error)
        if isinstance(error, StoreCorrupted) and worker is not None:
            worker.wipe()
        code = exit_code(error, worker=True)
    if worker is not None and worker.gave_up:
        end_at_once(code)
    if code is ExitCode.DONE and worker is not None:
        worker.close()
    return code


def end_at_once(code: ExitCode) -> NoReturn:
    """End the process: the interpreter would wait for librdkafka's clients, and these for brokers that are away."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def log_refused(error: ConfigError) -> None:
    """Log a command line that no worker can be made of."""
    logger.error("refused", extra=error.plain())


def log_end(error: Exception) -> None:
    """Log what ends the worker: one line with its fields for an error of ours, a traceback for any other."""
    logged = error.plain() | {"kind": _kind(error)} if isinstance(error, FrameworkError) else {}
    match error:
        case Fenced():
            logger.warning("fenced", extra=logged)
        case ConfigError():
            logger.error("halted", extra=logged | {"code": HaltCode.CONFIGURATION.value})
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
        case _:
            logger.error("crashed by an error that Grete did not foresee", exc_info=error)


def _kind(error: FrameworkError) -> str:
    """Return the class of an error as framework/errors.py has it: it says what to do."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == FrameworkError.__module__)
