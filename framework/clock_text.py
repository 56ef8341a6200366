"""Times as text for people: any number may come from outside, and not each is a time that a calendar has."""

import time

MINUTES, SECONDS = "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"


def clock_text(at_ms: float, form: str = SECONDS, *, utc: bool = False) -> str:
    """Return a time in ms since 1970, by this machine's time zone or in UTC; the number itself if it is no time."""
    try:
        return time.strftime(form, (time.gmtime if utc else time.localtime)(at_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{at_ms:.0f} ms since 1970"
