"""The parts of records that errors, log lines and screens of this process quote: the setting show_records.

A process has one value, set where its settings are read, before a record is. So the text that would quote a record is
never made, and a new place where errors are shown cannot show it.
"""

from typing import Literal

ShowRecords = Literal["all", "keys", "none"]
HIDDEN = "(hidden)"


class _Process:
    """This process."""

    shown: ShowRecords = "all"


def set_shown(what: ShowRecords) -> None:
    """Let this process quote all of a record, its key alone, or nothing of it."""
    _Process.shown = what


def shows_keys() -> bool:
    """Return whether keys are quoted."""
    return _Process.shown != "none"


def shows_values() -> bool:
    """Return whether values are quoted, and texts that may have one in them: of headers, state, and errors of code."""
    return _Process.shown == "all"


def key_text(key: object) -> str:
    """Return the key of a record or of a state's entry, as an error quotes it."""
    return repr(key) if shows_keys() else HIDDEN


def value_text(value: object) -> str:
    """Return a value, or another part of a record, as an error quotes it."""
    return repr(value) if shows_values() else HIDDEN


def error_text(error: object) -> str:
    """Return the text of an error of user code, a serde or a sink's server: each may quote a record."""
    return str(error) if shows_values() else HIDDEN


def named_error(error: BaseException) -> str:
    """Return the class of such an error, and its text."""
    return f"{type(error).__name__}: {error_text(error)}"
