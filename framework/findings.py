"""Findings about a job, good or bad: the value that was found, and what to do about it."""

from typing import Literal

import msgspec

Level = Literal["ok", "warning", "error"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. ``what``: a few words that are the same whenever it is found; ``where``: of whom.

    ``value``: what was found. ``remedy``: what to do, "" if all is well. ``code``: of a halt, else "".
    """

    level: Level
    what: str
    where: str
    value: str
    remedy: str = ""
    code: str = ""
