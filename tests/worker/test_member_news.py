"""A screen's lines about members: a few changes at once, a storm of them in a few lines."""

import time

import pytest

from grete.settings import Settings
from grete.worker.members.member_news import TOLD_AGAIN_S, TOLD_MAX, MemberNews
from grete.worker.members.members_client import MemberRow


def row(machine: str, session: str, code: str = "c", timeout_ms: int = 2_000) -> MemberRow:
    """Return a member that lives."""
    return MemberRow(f"id of {machine}", session, machine, 1, False, False, code, timeout_ms)


A, B = row("a", "a-1"), row("b", "b-1")


def test_a_few_changes_are_told_at_once() -> None:
    """As they are seen, each once."""
    told: list[str] = []
    news = MemberNews("job", "a-1", Settings(), told.append)
    for at_s, rows in enumerate(([A], [A], [A, B], [B], [B, A])):
        news.look(rows, float(at_s))
    assert told == [
        "1 member of the job: a",
        "2 members of the job: a, b",
        "1 member of the job: b",
        "2 members of the job: b, a",
    ]


def test_a_member_that_comes_and_goes_is_told_with_its_count() -> None:
    """A minute and a half of joins and deaths, one each second, costs a few lines, also of its code and time-outs."""
    told: list[str] = []
    news = MemberNews("job", "a-1", Settings(), told.append)
    news.look([A], 0.0)
    news.look([A, B], 0.1)
    for second in range(1, 91):
        news.look([A, B], second - 0.5)
        news.look([A, B, row("c", f"c-{second}", code="other", timeout_ms=9_000)], float(second))
    plain = [line for line in told if "of the job: " in line]
    assert len(plain) == TOLD_MAX + 1
    assert plain[2] == "3 members of the job: a, b, c"
    assert plain[-1].startswith("2 members of the job: a, b (c came 59 times and went 59 times in ")
    assert plain[-1].endswith(" s: look what it says there)")
    assert len(told) <= 3 * (TOLD_MAX + 1)
    told.clear()
    news.look([A, B], 91.0)
    news.look([A, B], 92.0)
    assert told == []
    for second in range(93, 93 + 2 * int(TOLD_AGAIN_S)):  # quiet again: it says how it ended, once
        news.look([A, B], float(second))
    assert len(told) == 1
    assert told[0].startswith("2 members of the job: a, b (c came ")
    news.look([A, B, row("c", "c-last")], 1_000.0)
    assert told[1:] == ["3 members of the job: a, b, c"]


def test_members_that_do_not_fit_are_told_once() -> None:
    """Different code, other time-outs, too few machines for standbys: when that begins, not at each look."""
    told: list[str] = []
    news = MemberNews("job", "a-1", Settings(standby_replicas=2), told.append)
    rows = [A, row("b", "b-1", code="other", timeout_ms=9_000)]
    news.look(rows, 0.0)
    news.look(rows, 100.0)
    assert [line.split(":")[0] for line in told] == [
        "joins job 'job', which runs on b",
        "members run different code of job 'job'",
        "member_timeout_ms is 2000 on a, 9000 on b",
        "standby_replicas = 2, and members are on 2 machines",
    ]


def test_a_member_that_joins_says_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """On which machines the job runs, and since when, where that is known: it may be another job that it was to be."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    told: list[str] = []
    news = MemberNews("spending", "a-1", Settings(), told.append)
    rows = [B._replace(since_ms=1_795_699_607_000), row("c", "c-1"), A]
    news.look(rows, 0.0)
    news.look(rows, 1.0)
    news.look(rows[:-1], 2.0)
    assert told == [
        "joins job 'spending', which runs on b (since 2026-11-26 13:26:47), c",
        "2 members of the job: b, c",
    ]
    monkeypatch.undo()
    time.tzset()
