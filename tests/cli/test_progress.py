"""Progress: bars on a terminal, lines elsewhere, and nothing that could steer it."""

import io

import pytest
from rich.console import Console

from grete.cli.output.progress import Screen, counted
from grete.state.read.shown import printable


def shown(*, terminal: bool) -> tuple[Screen, io.StringIO]:
    """Return a screen and what it prints."""
    out = io.StringIO()
    return Screen(Console(file=out, force_terminal=terminal, width=100)), out


def test_notes_cannot_steer_the_terminal() -> None:
    """Names of files come from anywhere: neither control characters nor markup act."""
    screen, out = shown(terminal=False)
    screen.say("a\x1b[31mb\rc [bold]d[/bold]")
    assert out.getvalue() == "a\\x1b[31mb\\x0dc [bold]d[/bold]\n"
    assert printable("\x7f\x9b ü\n") == "\\x7f\\x9b ü\n"


def test_a_restore_has_a_bar_as_long_as_it_lasts() -> None:
    """It is shown while a task reads its changelog, and gone when it runs."""
    screen, out = shown(terminal=True)
    with screen:
        screen.restores({"index-0": (3, 10)})
        assert "restoring index-0" in screen._bars
        screen.restores({})
        assert screen._bars == {}
    assert "restoring index-0" in out.getvalue()


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    """A build's log is not filled with bars."""
    screen, out = shown(terminal=False)
    with screen:
        for number in range(100):
            screen.bar("read", number, 1000)
        assert out.getvalue() == ""
        screen._said_s -= 60
        screen.bar("read", 100, 1000)
        screen.bar("read", 101, 1000)
        screen._said_s -= 60
        screen.bar("read", 102, 1000, "3 outputs out already")
    assert out.getvalue().splitlines() == ["read 100 of 1,000", "read 102 of 1,000 (3 outputs out already)"]


def test_a_sink_in_trouble_is_told_once_and_its_end_too() -> None:
    """A worker tries again and again: a line when that begins, one when it is over, none in between."""
    screen, out = shown(terminal=False)
    for _ in range(3):
        screen.troubles({"export-0": "no answer"})
    screen.troubles({})
    screen.troubles({})
    assert out.getvalue().splitlines() == [
        "export-0 waits for its sink: no answer",
        "export-0: its sink answers again",
    ]


def test_late_records_are_told_at_once_then_once_a_minute_and_at_the_end() -> None:
    """Records that windows drop are reported on the screen with what to do, but not at each record."""
    screen, out = shown(terminal=False)
    screen.dropped({"late": {"count-0": 0}}, {})
    screen.dropped({"late": {"count-0": 0}}, {}, finally_=True)
    assert out.getvalue() == ""
    screen.dropped({"late": {"count-0": 2, "count-1": 1_000, "other-0": 0}}, {})
    screen.dropped({"late": {"count-0": 3, "count-1": 1_000, "other-0": 0}}, {})
    said, said_s = screen._dropped["late"]
    screen._dropped["late"] = said, said_s - 60  # a minute has gone by
    screen.dropped({"late": {"count-0": 3, "count-1": 1_000, "other-0": 0}}, {})
    screen.dropped({"late": {"count-0": 3, "count-1": 1_000, "other-0": 0}}, {})
    screen.dropped({"late": {"count-0": 3, "count-1": 1_000, "other-0": 0}}, {}, finally_=True)
    lines = out.getvalue().splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "records dropped, too late for their windows or joins: 1,002",
        *["records dropped, too late for their windows or joins: 1,003"] * 2,
    ]
    assert "(count-0: 2, count-1: 1,000): raise their grace_ms" in lines[0]
    screen.dropped({"duplicate": {"count-0": 7}, "failed": {"count-0": 2}}, {"count-0": "KeyError: 'cents'"})
    assert out.getvalue().splitlines()[3:] == [
        "duplicates dropped: 7 (count-0: 7): see deduplicate= (docs/guides/duplicates.md)",
        'dropped, because processing failed: 2 (count-0: 2): see errors="drop" (docs/guides/bad-records.md)',
        "  the last one: KeyError: 'cents'",
    ]


@pytest.mark.parametrize(("count", "text"), [(0, "0 records"), (1, "1 record"), (2_000, "2,000 records")])
def test_one_is_no_plural(count: int, text: str) -> None:
    """A run that has taken one record does not say "1 input records"."""
    assert counted(count, "record") == text
