"""A rescale from one partition: there, no key can tell that it is the record's, and the inputs are asked."""

from typing import Any

import msgspec
import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, Window, int64, utf8
from grete import TumblingWindow as Tumbling
from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.state.write import rescale as rescale_module
from tests.state.moving_host import SETTINGS, MovableJob

DELIVERIES = Topic("deliveries", key=utf8, value=int64)
ONE = b"\0\0\0\0\0\0\0\1"


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


class ByShop(Task):
    """Has the record's key, in a store and a window."""

    deliveries = Input(DELIVERIES)
    pieces = Store("pieces", key=utf8, value=int64)
    days = Tumbling("days", 86_400_000, key=utf8, value=int64)
    out = Output(Topic("by-shop", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        self.pieces.put(record.key, self.pieces.get(record.key, 0) + record.value)
        self.days.update(record.key, record.timestamp, lambda n: (n or 0) + 1)
        self.out.send(record.key, record.value)

    def on_window(self, window: Window[str, int]) -> None: ...


class ByArticle(ByShop):
    """Has keys of its own, which begin with the record's."""

    name = "by-shop"
    days = Tumbling("days", 86_400_000, key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.pieces.put(f"{record.key}/tea", record.value)


class Behind(Task):
    """Reads a stream alone."""

    pieces = Input(Topic("by-shop", key=utf8, value=int64))
    kept = Store("kept", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.kept.put(record.key, record.value)


class Split(Behind):
    """Reads a stream alone, and has keys of its own."""

    name = "behind"

    def process(self, record: Record[str, int]) -> None:
        self.kept.put(f"{record.key}/tea", record.value)


def run(*stages: type[Task], shops: int = 8, **settings: Any) -> MovableJob:
    """Return a job of one partition that has processed a delivery to each shop."""
    job = MovableJob(Job("stock", [*stages]), msgspec.structs.replace(SETTINGS, **settings))
    return job.feed("deliveries", [(b"shop%d" % number, ONE, 1_700_000_000_000) for number in range(shops)]).run()


def test_keys_that_records_have_are_moved() -> None:
    """All of them are still in the input: none is lost, and each record finds its state."""
    moved = run(ByShop).moved(4)
    moved.feed("deliveries", [(b"shop%d" % number, ONE, 1_700_000_000_001) for number in range(8)]).run()
    counted = {key: value for number in range(4) for (_, key), value in moved.state(number).items() if b"shop" in key}
    assert sum(value == ONE[:-1] + b"\2" for value in counted.values()) == 2 * 8  # in the store, and in the window


def test_keys_of_the_tasks_own_are_refused() -> None:
    """ "shop1/tea" would go elsewhere than the records of shop1, though --assume-keyed says that it is known."""
    with pytest.raises(ConfigError, match=r"store by-shop/pieces: no record .* in deliveries has the key b'shop0/tea'"):
        run(ByArticle).moved(4)


def test_keys_of_records_that_are_gone_are_refused() -> None:
    """Nothing shows any more whose they are."""
    trimmed = run(ByShop)
    trimmed.log.trim(TopicPartition("deliveries", 0), 1)
    with pytest.raises(ConfigError, match=r"still in deliveries has the key b'shop0'.*grete backfill"):
        trimmed.moved(2)


def test_keys_behind_a_stream_that_keeps_no_past_are_refused() -> None:
    """The records are trimmed, so nothing shows that the keys are theirs, whatever the caller says."""
    with pytest.raises(ConfigError, match=r"store behind/kept: no record .* key b'shop0'.*for stream_retention_ms\."):
        run(ByShop, Behind).moved(2)


def test_keys_behind_a_stream_that_is_kept_are_found_in_it() -> None:
    """The retained stream tells the keys of its records from the task's own keys."""
    kept = run(ByShop, Behind, stream_retention_ms=3_600_000).moved(2)
    assert sum(key == b"shop3" for number in range(2) for _, key in kept.state(number, 1)) == 1
    with pytest.raises(ConfigError, match=r"store behind/kept: no record .* has the key b'shop0/tea'"):
        run(ByShop, Split, stream_retention_ms=3_600_000).moved(2)
