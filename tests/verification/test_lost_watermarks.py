"""The check of a reader after watermarks were lost to a damage: all but those that nothing can notice (0029)."""

from grete.core.deterministic.merge_channel import ALL
from grete.core.events import Advance
from grete.protocol.control import encode_progress, encode_watermark
from tests.verification.simulation.made import Made

END = 10  # of the log before the damage


def _watermark(t: int) -> bytes:
    return encode_watermark(1, 2, 3, 1, False, (7,), (t,))


def _progress(t: int) -> bytes:
    return encode_progress(1, 2, 3, 1, t, ALL)


def _made(*told: int) -> Made:
    return Made(told={t: Advance(t, 7, idle=False) for t in told})


def test_what_a_damage_takes_is_not_asked_for_and_all_else_is() -> None:
    """A reader must have the last watermark that is left, also if a lost copy of it was the second one."""
    made = _made(10, 20, 30)
    made.lose([_watermark(10), _watermark(20)], [_watermark(20), _watermark(30)], END)
    assert [made.last_told(t) for t in (9, 10, 25, 40)] == [-1, 10, 20, 20]


def test_a_lost_watermark_that_is_told_again_in_time_is_asked_for() -> None:
    """One that comes again behind a progress message that passes it is dropped as known."""
    made = _made(10, 20, 30)
    made.lose([_watermark(10)], [_watermark(20), _watermark(30)], END)
    made.after_a_damage(END, _progress(20))
    made.after_a_damage(END + 1, _watermark(20))
    assert made.last_told(40) == 10
    made.after_a_damage(END + 2, _watermark(30))
    assert made.last_told(40) == 30


def test_what_comes_at_lost_offsets_may_be_missed() -> None:
    """A reader that was at the old end goes on there; what it has from before the damage it must have all the same."""
    made = _made(10)
    made.lose([_watermark(10)], [_progress(5)], END)
    made.after_a_damage(END - 1, _watermark(10))
    made.after_a_damage(END - 1, _watermark(20))
    made.told[20] = Advance(20, 7, idle=False)
    assert made.last_told(40) == 10
    made.after_a_damage(END, _watermark(20))
    assert made.last_told(40) == 20


def test_without_a_damage_every_watermark_is_asked_for() -> None:
    """Offsets and times say nothing then."""
    made = _made(10, 20)
    made.after_a_damage(0, _progress(30))
    made.after_a_damage(1, _watermark(20))
    assert made.last_told(40) == 20
