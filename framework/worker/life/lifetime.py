"""A worker's life in its process: signals, memory, log lines of its start and end, exit code (C5)."""

import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from msgspec.structs import replace

from grete.core.changelog.damage import named
from grete.errors import ConfigError, ExitCode, exit_code
from grete.protocol.report import WorkerReport
from grete.worker.logs.end_log import end_report, log_end
from grete.worker.logs.own_lines import enable_own, own_logger
from grete.worker.logs.worker_log import LogContext
from grete.worker.pipes.signal_pipe import on_stop
from grete.worker.pipes.status_pipe import StatusPipe
from grete.worker.process.worker import Worker

logger = own_logger()


def run_worker(make: Callable[[], Worker], whose: LogContext, pipe: StatusPipe | None = None) -> ExitCode:
    """Make and run a worker with signals, logs and exit codes.

    ``whose`` gets to know which task a line is about, ``pipe`` the error that ends the worker. A stop that has timed
    out ends the process here.
    """
    worker: Worker | None = None
    error: Exception | None = None
    if not (os.isatty(0) or os.environ.get("PYTHONBREAKPOINT")):  # else pdb, or what the user has chosen
        sys.breakpointhook = _refuse_breakpoint
    gc.freeze()  # what is imported stays: no collection need look at it
    gc.set_threshold(50_000, 20, 50)  # ours makes no cycles, but thousands of tuples that a checkpoint holds on to
    try:
        worker = made = make()
        enable_own()
        whose.task = lambda: made.logs_for

        def on_signal(_signum: int, _frame: FrameType | None) -> None:
            assert worker is not None
            worker.stop()

        on_stop(on_signal)
        signal.signal(signal.SIGUSR1, lambda _signum, _frame: made.drain())  # from a supervisor
        logger.info("worker started", extra={"tasks": [driver.wiring.name for driver in worker.drivers]})
        with worker.watchdog(), worker.blocking_watch():
            code = worker.run()
        logger.info("worker done", extra={"code": code})
    except Exception as raised:  # noqa: BLE001  # whatever it is, it decides how the process ends
        error = named(raised)
        log_end(error)
        code = exit_code(error, worker=True)
    if pipe is not None:
        pipe.end(_last_report(worker, error, code))
    if worker is not None and worker.stopping.gave_up:
        end_at_once(code)
    if code is not ExitCode.DONE:
        # The interpreter takes our handlers back before it has ended: the signal would take the place of the code.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if code is ExitCode.DONE and worker is not None:
        worker.close()
    return code


def _last_report(worker: Worker | None, error: Exception | None, code: ExitCode) -> WorkerReport:
    """Return the last report, with the end: user code can make an exit code, and no report."""
    tasks = () if worker is None else worker.hosting.tasks.values()
    end = None if error is None else end_report(error, (task.wiring for task in tasks))
    return replace(WorkerReport(tasks=()) if worker is None else worker.reports.last, end=end, exit=code.value)


def _refuse_breakpoint(*_arguments: object, **_options: object) -> NoReturn:
    """Stop the worker, whatever becomes of records that fail. Raises ConfigError."""
    at = traceback.extract_stack(limit=2)[0]
    raise ConfigError(
        f"breakpoint() in {at.filename}, line {at.lineno}: a worker has no terminal to debug on; take "
        "it out, or run the job in a test by the kit, or the failing record by grete incident run --pdb"
    )


def end_at_once(code: ExitCode) -> NoReturn:
    """End the process: the interpreter would wait for librdkafka's clients, and these for brokers that are away."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def log_refused(error: ConfigError) -> None:
    """Log a command line that no worker can be made of."""
    logger.error("refused", extra=error.plain())
