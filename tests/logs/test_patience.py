"""The bounds of waiting for a silent log, and the lines meanwhile, on a clock of the test's."""

from grete.logs.patience import Patience

KAFKA = "Kafka at broker:9092"
MINUTE = 60


class Clock:
    """Time as the test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_thirty_minutes_are_a_line_a_minute() -> None:
    """The first line comes after some seconds, then one a minute, whatever the number of questions; then the end."""
    clock, said = Clock(), list[str]()
    patience = Patience(say=said.append, clock_s=clock)
    for second in range(30 * MINUTE):
        clock.now = float(second)
        patience.waits(KAFKA, "Connection refused")
    assert len(said) == 30
    assert said[0] == f"{KAFKA} has not answered for 5 s (Connection refused): waiting, nothing is lost"
    assert said[-1] == f"{KAFKA} has not answered for 29 min (Connection refused): waiting, nothing is lost"
    silent = [patience.silent]  # then nothing else need say what it waits for
    clock.now = 30.0 * MINUTE
    patience.answered(KAFKA)
    silent.append(patience.silent)
    assert silent == [True, False]
    patience.answered(KAFKA)
    assert said[30:] == [f"{KAFKA} answers again, after 30 min"]


def test_a_short_silence_is_no_news() -> None:
    """Each answer begins a new wait."""
    clock, said = Clock(), list[str]()
    patience = Patience(say=said.append, clock_s=clock)
    for second in range(10 * MINUTE):
        clock.now = float(second)
        patience.waits(KAFKA, "")
        if second % 4 == 3:
            patience.answered(KAFKA)
    assert said == []


def test_an_answer_since_the_stop_was_asked_for() -> None:
    """Nothing answered what was asked: a stop could do nothing. One answer, or no question: something else held it."""
    clock = Clock()
    patience = Patience(clock_s=clock)
    clock.now = 1.0
    patience.answered(KAFKA)
    clock.now = 2.0
    assert not patience.unanswered_since(1.5)
    patience.waits(KAFKA, "")
    assert patience.unanswered_since(1.5)
    clock.now = 3.0
    patience.answered(KAFKA)
    assert not patience.unanswered_since(1.5)
    patience.waits(KAFKA, "")
    assert not patience.unanswered_since(1.5)


def test_the_bounds_of_waiting() -> None:
    """A question, a start, a question asked by the way, and the end of all waiting."""
    clock = Clock()
    patience = Patience(600, 15, clock_s=clock)
    clock.now = 16
    assert patience.over(0, connecting=True)
    assert not patience.over(0)
    with patience.briefly(2):
        assert patience.over(13)
        assert not patience.over(15)
    assert not patience.over(13)
    patience.end_within(10)
    patience.end_within(60)  # a later, longer one changes nothing
    with patience.briefly(2):
        assert patience.over(clock.now)  # who is to stop tells its workers, and asks nothing by the way
    assert not patience.over(clock.now)
    ended = []
    for clock.now in (25.9, 26):
        ended.append((patience.ended, patience.over(25)))
    assert ended == [(False, False), (True, True)]
