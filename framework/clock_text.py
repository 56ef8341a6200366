"""Times as text for people: any number may come from outside, and not each is a time that a calendar has."""

import time
from datetime import datetime

MINUTES, SECONDS = "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"


def clock_text(at_ms: float, form: str = SECONDS, *, utc: bool = False) -> str:
    """Return a time in ms since 1970, by this machine's time zone or in UTC; the number itself if it is no time."""
    try:
        return time.strftime(form, (time.gmtime if utc else time.localtime)(at_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{at_ms:.0f} ms since 1970"


def time_of(text: str) -> datetime:
    """Return the time that a person has written. Raises ValueError: none, or one without a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write one such as 2026-11-01T00:00Z or 2026-11-01T09:30+01:00"
        ) from None
    if found.tzinfo is None:
        raise ValueError(
            "the time has no zone, and means another moment on another machine: add Z for UTC, or an offset such as "
            "+01:00"
        )
    return found
