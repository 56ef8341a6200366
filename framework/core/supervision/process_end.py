"""The end of a process: as its driver reports it, and as pages, metrics and log lines show it."""

import textwrap
from dataclasses import dataclass
from enum import Enum

import msgspec

from grete.errors import ExitCode, Halted
from grete.halts import HaltCode, halt_code
from grete.protocol.report import EndReport, ErrorPlace, Reason


class ExitKind(Enum):
    """The cause of a process's end."""

    EXIT = "the process itself, with an exit code"
    TERMINATED = "SIGTERM: it had not got so far as to take the signal itself"
    ABORTED = "a signal that it gets of itself: a library of C has found itself at fault, or the processor has"
    KILLED = "any other signal"


@dataclass(frozen=True)
class ProcessExit:
    """The end of a process. ``code``: of its exit, a signal as a negative number. ``text``: the same in words.

    ``reported``: the error that it reported, None: it could not, or there was none. ``logged``: what its log says
    instead. ``log``: the path of that. ``disk_full``: whether it could write no more. ``at_ms``: since 1970.
    """

    kind: ExitKind
    code: int
    text: str
    reported: EndReport | None
    logged: EndReport | None
    log: str
    disk_full: bool
    at_ms: int

    @property
    def said(self) -> EndReport | None:
        """Its last words, for a person."""
        return self.reported or self.logged

    @property
    def words(self) -> str:
        """The error that it has said, and where its log is."""
        return f"(log: {self.log})" if self.said is None else f"{self.said.text} (log: {self.log})"

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be told of it if it was asked to end."""
        return self.code in (ExitCode.DONE, ExitCode.FENCED) or self.kind is ExitKind.TERMINATED

    def cause(self, *, silent: bool) -> EndReport | None:
        """Return the error that has ended it; the log of one that was killed tells of none.

        ``silent``: it was killed because it had said nothing for too long.
        """
        by_itself = silent or self.kind in (ExitKind.EXIT, ExitKind.ABORTED)
        return self.said if by_itself else self.reported

    def reason(self, *, silent: bool) -> Reason:
        """Return the reason of its end; ``silent``: as for ``cause``."""
        cause = self.cause(silent=silent)
        known = None if cause is None or cause.reason == "other" else cause.reason
        if self.code == ExitCode.HALTED:
            return known or "halted"
        if silent:
            return "hung"
        if self.kind is ExitKind.ABORTED:
            return "aborted"
        if self.kind is not ExitKind.EXIT:
            return known or "killed"
        return "disk" if self.disk_full and known != "hung" else known or "other"


class WorkerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One end. ``text``: the error; ``traceback``: of the user's code, "" if there is none; ``code``: of a halt."""

    reason: Reason
    text: str
    traceback: str = ""
    code: str = ""
    at_ms: int  # since 1970
    place: ErrorPlace = ErrorPlace()


def worker_end(end: ProcessExit, how: str, *, silent: bool) -> WorkerEnd:
    """Return an end for those who are told of it. ``how``: the worker's end in words."""
    said, text = end.cause(silent=silent), how
    if said is not None:
        text = f"{how}: {said.text}" if end.kind is ExitKind.ABORTED else said.text  # libc's failed assertion
    return WorkerEnd(
        reason=end.reason(silent=silent),
        text=text,
        traceback="" if said is None else said.traceback,
        code=said.code if said is not None and end.code == ExitCode.HALTED else "",
        at_ms=end.at_ms,
        place=ErrorPlace() if said is None else said.place,
    )


def halted(said: EndReport | None, text: str, *, given_up: bool) -> Halted:
    """Return the error of a worker that will not come back, with the place that it has ``said``.

    ``given_up``: it has crashed too often; else it has halted.
    """
    said = said or EndReport(reason="other", text="")
    place = said.place
    return Halted(
        text + indented(said.traceback),
        code=HaltCode.GIVEN_UP if given_up else halt_code(said.code or None),
        task=place.task,
        stage=place.stage,
        topic=place.topic,
        partition=place.topic_partition,
        offset=place.offset,
        checkpoint_id=place.checkpoint_id,
        setting=place.setting,
    )


def indented(trace: str) -> str:
    """Return a traceback of the user's code on lines of its own, or ""."""
    return f"\n{textwrap.indent(trace, '  ')}" if trace else ""
