"""Refusals of a migration that only some states show, on jobs in memory."""

from collections.abc import Callable
from decimal import Decimal

import pytest
from msgspec import Struct

from grete import (
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    json,
    utf8,
)
from grete.api.jobs.versions import FIRST
from grete.errors import ConfigError
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.state.write import migrate as migrate_module
from grete.state.write.migrate import migrate
from tests.state.moving_host import SETTINGS, MovableJob

BEGIN_MS = 1_700_000_000_000
PRICE = json(Decimal)
ORDERS = Topic("orders", key=utf8, value=utf8)
BY_PRICE = Topic("by-price", key=PRICE, value=utf8)
RATES = Topic("rates", key=PRICE, value=utf8)
# as many as a check of keys wants; half of them move
PRICES = [f"{n}.50" for n in range(40)]


class Spread(Task):
    orders = Input(ORDERS)
    out = Output(BY_PRICE)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(Decimal(record.value), record.value)


class Count(Task):
    name = "count"
    prices = Input(BY_PRICE)
    seen = Store("seen", key=PRICE, value=utf8)

    def process(self, record: Record[Decimal, str]) -> None:
        self.seen.put(record.key, record.value)


class WithRates(Count):
    """Reads a topic from outside, whose records stay where they are."""

    rates = Input(RATES)


class Waits(Count):
    """Has a timer of its own, whose key is any text."""

    timers = Timers()

    def process(self, record: Record[Decimal, str]) -> None:
        super().process(record)
        self.timers.schedule(record.timestamp + (1 << 40), f"after {record.value}")

    def on_timer(self, timer: Timer) -> None:
        """It never comes."""


class Elsewhere(Count):
    """Keeps keys that are not those of its records."""

    def process(self, record: Record[Decimal, str]) -> None:
        self.seen.put(record.key + 1, record.value)


class Timed(Count):
    """Has a window, so it goes by event time."""

    blocks = TumblingWindow("blocks", 1 << 40, key=PRICE, value=utf8)

    def process(self, record: Record[Decimal, str]) -> None:
        super().process(record)
        self.blocks.update(record.key, record.timestamp, lambda _: record.value)

    def on_window(self, window: Window[Decimal, str]) -> None:
        """It stays open."""


class OfRates(Timed):
    """The same, of a topic from outside, of which each partition is at a time of its own."""

    prices = Input(RATES)


class Rising(Struct):
    """A price that is read as another one than was written."""

    price: Decimal

    def __post_init__(self) -> None:
        """Add what it costs to read it."""
        self.price += 1


class Rises(Spread):
    """Keeps such keys."""

    kept = Store("kept", key=json(Rising), value=utf8)

    def process(self, record: Record[str, str]) -> None:
        self.kept.put(Rising(Decimal(record.value)), record.value)


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs, theirs are in this process, nor for pins: these jobs have none."""
    monkeypatch.setattr(migrate_module, "refuse_if_owned", lambda *_: None)
    monkeypatch.setattr(migrate_module, "check_whole", lambda *_: None)


def ran(task: type[Task], *prices: str) -> MovableJob:
    """Return a job of version 1 that has run."""
    job = Job("prices", stages=[Rises, Count] if task is Rises else [Spread, task], partitions=2)
    job.write_by(FIRST)
    rows = [(b"k%d" % n, price.encode(), BEGIN_MS + n) for n, price in enumerate(prices)]
    return MovableJob(job).feed("orders", rows).run()


def apart() -> MovableJob:
    """Return one of which a task has ended while the other went on: event time has passed there alone."""
    job = ran(Timed, *PRICES)
    away = job.host.tasks.pop(("count", 1))
    (price, *_) = (price for price in PRICES if partition_of(f'"{price}"'.encode(), 2) == 0)
    job.feed("orders", [(b"k", price.encode(), BEGIN_MS + 5_000)]).run()
    job.host.tasks["count", 1] = away
    return job


def rescaled() -> MovableJob:
    """Return one that has had half as many tasks, each at an event time of its own."""
    job = Job("rates", stages=[OfRates], partitions=2)
    job.write_by(FIRST)
    rows = [(f'"{price}"'.encode(), price.encode(), BEGIN_MS + n) for n, price in enumerate(PRICES)]
    more = MovableJob(job).feed("rates", rows).run().moved(4)
    more.job.write_by(FIRST)
    return more


REFUSED: dict[str, tuple[Callable[[], MovableJob], Settings, str]] = {
    "without checkpoints": (lambda: ran(Count), Settings(processing_guarantee="none"), "has no checkpoint of all its"),
    "a key that is there": (lambda: ran(Count, "1.0", "1"), SETTINGS, "are equal, and both would be"),
    "records from outside": (lambda: ran(WithRates, *PRICES), SETTINGS, "topic rates, which come from outside, stay"),
    "timers of its own": (lambda: ran(Waits, *PRICES), SETTINGS, "timers that wait, whose keys are texts of its code"),
    "not keyed as records": (lambda: ran(Elsewhere, *PRICES), SETTINGS, "it is not keyed as the records are, so"),
    "other event times": (apart, SETTINGS, "another of its tasks, which is at another event time"),
    "a floor of times": (rescaled, SETTINGS, "was rescaled while its tasks were at other event"),
    "a type that changes": (lambda: ran(Rises, "1.0"), SETTINGS, "what its type writes is another"),
}


@pytest.mark.parametrize(("begun", "settings", "said"), REFUSED.values(), ids=REFUSED)
def test_what_only_a_state_shows_is_refused_before_anything_is_written(
    begun: Callable[[], MovableJob], settings: Settings, said: str
) -> None:
    """With the reason and a way, and no message is in a changelog that was not there."""
    before = begun()
    sizes = {partition: before.log.bounds(partition) for partition in before.host.history.data.partitions}
    with pytest.raises(ConfigError, match=said):
        migrate(before.log, before.job, settings, assume_keyed=True)
    assert {partition: before.log.bounds(partition) for partition in before.host.history.data.partitions} == sizes
