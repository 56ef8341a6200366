"""The problems of a job as the page has them: one of each kind, with its places, since when, and where to look."""

from collections.abc import Iterable

from grete.findings import Finding
from grete.monitor.job_view import JobView
from grete.monitor.page.causes import FindingAt, findings_of

TAKE_MS = 1_000  # between two looks: a problem's time is right to that
WHERES_MAX = 3  # that a title names

_Key = tuple[str, str]


class Problem(Finding, frozen=True, kw_only=True):
    """Findings that have one cause, and one remedy. ``value``: of the first of its ``places``.

    ``others``: what was found at the other places. ``since_ms``: when the first one was found, in ms since 1970.
    ``link``: the view of the page that has the records, or the tasks; "": there is none.
    """

    places: tuple[str, ...]
    others: tuple[str, ...] = ()
    since_ms: int
    link: str = ""


class Problems:
    """Keeps since when there is what. One thread calls ``take``, others may ask."""

    def __init__(self) -> None:
        """Know of none."""
        self._since: dict[_Key, int] = {}
        self._taken_ms = 0

    def take(self, view: JobView) -> None:
        """Take a view; most of them change nothing. What is found no more is forgotten."""
        if abs(view.at_ms - self._taken_ms) >= TAKE_MS:
            self._taken_ms = view.at_ms
            self._since = {_key(each): self._when(each, view.at_ms) for each in findings_of(view)}

    def now(self, view: JobView, more: Iterable[FindingAt] = ()) -> list[Problem]:
        """Return the problems of a view, and ``more``: errors first, then as they came."""
        groups: dict[tuple[str, str, str, str], list[FindingAt]] = {}
        for each in (*more, *findings_of(view)):
            groups.setdefault((each.level, each.what, each.remedy, each.code), []).append(each)
        return [self._problem(group, view.at_ms) for group in groups.values()]

    def _when(self, found: FindingAt, at_ms: int) -> int:
        return self._since.get(_key(found), at_ms) if found.since_ms is None else found.since_ms

    def _problem(self, group: list[FindingAt], at_ms: int) -> Problem:
        first, *others = group
        places = tuple(each.where for each in group)
        few = len(places) <= WHERES_MAX
        return Problem(
            level=first.level,
            what=first.what,
            where=", ".join(places) if few else f"{places[0]} and {len(others)} more",
            value=first.value,
            remedy=first.remedy,
            code=first.code,
            places=places,
            others=tuple(f"{each.where}: {each.value}" for each in others),
            since_ms=min(self._when(each, at_ms) for each in group),
            link=first.link,
        )


def _key(found: FindingAt) -> _Key:
    return found.what, found.where
