"""Prints which members joined and left the job: a few changes at once, many as one line a minute."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grete.clock_text import clock_text
from grete.settings import Settings
from grete.worker.members.members_client import MemberRow

TOLD_MAX = 4  # changes one after another that are told at once: machines that start together, or a rolling upgrade
TOLD_AGAIN_S = 60.0  # until one more may be told: what has changed in between is told with it


@dataclass
class _Held:
    """The changes that no line has told yet, and when the first of them was seen."""

    since_s: float
    came: Counter[str] = field(default_factory=Counter)
    went: Counter[str] = field(default_factory=Counter)


class MemberNews:
    """``look`` tells what has changed since the last call, or keeps it for a later one."""

    def __init__(self, job: str, session: str, settings: Settings, tell: Callable[[str], None]) -> None:
        """Know no member. ``session``: that of the member whose screen it is."""
        self._job, self._session, self._settings, self._tell = job, session, settings, tell
        self._members: tuple[tuple[str, str], ...] = ()  # session and machine, as last seen
        self._held: _Held | None = None
        self._lines, self._at_s = float(TOLD_MAX), 0.0  # that may be told at once, as of then
        self._codes: dict[str, list[str]] = {}
        self._timeouts: dict[str, int] = {}
        self._machines = 0
        self._told = False

    def look(self, rows: Sequence[MemberRow], now_s: float) -> None:
        """Take the members that live now; at the first time those that lived when this one began."""
        members = tuple((row.session, row.machine) for row in rows)
        if members != self._members:
            self._held = self._held or _Held(now_s)
            self._held.came.update(machine for _, machine in set(members) - set(self._members))
            self._held.went.update(machine for _, machine in set(self._members) - set(members))
            self._members = members
        self._lines, self._at_s = min(TOLD_MAX, self._lines + (now_s - self._at_s) / TOLD_AGAIN_S), now_s
        if self._held is not None and self._lines >= 1:
            self._lines -= 1
            others = [row for row in rows if row.session != self._session]
            if others and not self._told:
                self._tell(f"joins job {self._job!r}, which runs on {', '.join(map(_whose, others))}")
            else:
                names = ", ".join(machine for _, machine in members)
                count = f"{len(members)} {'member' if len(members) == 1 else 'members'} of the job: {names}"
                self._tell(count + _restless(self._held, now_s))
            self._held, self._told = None, True
            self._tell_codes(rows)
            self._tell_timeouts(rows)
            self._tell_standbys(len({row.machine for row in rows}))

    def _tell_codes(self, rows: Sequence[MemberRow]) -> None:
        """Say so if members run different code, when that changes."""
        codes: dict[str, list[str]] = {}
        for row in rows:
            if row.code:
                codes.setdefault(row.code, []).append(row.machine)
        if codes != self._codes and len(codes) > 1:
            which = "; ".join(f"{code} on {', '.join(machines)}" for code, machines in codes.items())
            self._tell(
                f"members run different code of job {self._job!r}: {which}. While the code changes machine "
                "by machine, that is as it should be; else stop one of them: two jobs of one cluster need two names"
            )
        self._codes = codes

    def _tell_timeouts(self, rows: Sequence[MemberRow]) -> None:
        """Say so if members have different time-outs, when that changes."""
        timeouts = {row.machine: row.timeout_ms for row in rows if row.timeout_ms}
        if timeouts != self._timeouts and len(set(timeouts.values())) > 1:
            which = ", ".join(f"{timeout} on {machine}" for machine, timeout in timeouts.items())
            self._tell(
                f"member_timeout_ms is {which}: a machine that dies is found out after the longer of its own and the "
                "reader's: set it alike on all machines"
            )
        self._timeouts = timeouts

    def _tell_standbys(self, machines: int) -> None:
        """Say so if there are not enough machines for the standbys, when their number changes."""
        asked, before = self._settings.standby_replicas, self._machines
        self._machines = machines
        if machines != before and 0 < machines <= asked:
            have = f"{machines} {'machine' if machines == 1 else 'machines'}"
            self._tell(
                f"standby_replicas = {asked}, and members are on {have}: at most {machines - 1} of a partition's "
                f"standbys outlive its machine; start members on {asked + 1 - machines} more, or lower it"
            )


def _restless(held: _Held, now_s: float) -> str:
    """Return the machines that came and went several times, "" if none did."""
    again = [machine for machine in sorted(held.came | held.went) if held.came[machine] + held.went[machine] > 2]
    if not again:
        return ""
    parts = [f"{machine} came {_times(held.came[machine])} and went {_times(held.went[machine])}" for machine in again]
    return f" ({'; '.join(parts)} in the last {now_s - held.since_s:.0f} s: look what it says there)"


def _whose(row: MemberRow) -> str:
    """Return the machine of a member, and since when it has run there, by its clock."""
    return f"{row.machine} (since {clock_text(row.since_ms)})" if row.since_ms else row.machine


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
