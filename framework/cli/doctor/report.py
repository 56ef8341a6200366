"""The findings of `grete doctor`, as they are collected."""

from grete.errors import FrameworkError
from grete.findings import Finding, Level


class Report:
    """The findings, in the order in which they were made."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def ok(self, what: str, where: str, value: str) -> None:
        """Note what is in order, or what cannot be known from here."""
        self._add("ok", what, where, value, "")

    def warn(self, what: str, where: str, value: str, remedy: str) -> None:
        """Note what may do harm."""
        self._add("warning", what, where, value, remedy)

    def fail(self, what: str, where: str, value: str, remedy: str) -> None:
        """Note what keeps the job from running, or from being right."""
        self._add("error", what, where, value, remedy)

    def failed(self, what: str, where: str, error: FrameworkError) -> None:
        """Note an error that a start of the job would meet: its text says what to do."""
        self.fail(what, where, str(error), "do what the text says")

    def check(self, what: str, where: str, value: str, remedy: str, *, well: bool) -> None:
        """Note what is in order if it is ``well``, else an error."""
        self._add("ok" if well else "error", what, where, value, "" if well else remedy)

    def _add(self, level: Level, what: str, where: str, value: str, remedy: str) -> None:
        self.findings.append(Finding(level=level, what=what, where=where, value=value, remedy=remedy))
