"""Keys of several parts, whose first part places the record: the state by them moves with it."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from grete import ById, Input, Job, Key, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8
from grete.api.serdes.key import partition_by
from grete.errors import ConfigError
from grete.state.write import rescale as rescale_module
from tests.state.moving_host import SETTINGS, Fed, MovableJob

AT_MS = 1_700_000_000_000
PAIR = Key(utf8, utf8)
SHOPS, ARTICLES = [f"shop{number}" for number in range(12)], ["salt", "tea", "t\0e"]
DELIVERIES = Topic("deliveries", key=utf8, value=json(tuple[str, int]))  # by shop: article, pieces
KEPT = msgspec.structs.replace(SETTINGS, stream_retention_ms=3_600_000)  # for a rescale from one partition
BY_ARTICLE = Topic("by-article", key=PAIR, value=int64)


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not look for live workers of these jobs: theirs are in this process."""
    monkeypatch.setattr(rescale_module, "refuse_if_owned", lambda *_: None)


class Stock(Task):
    """Has one entry for each article of a shop, while its records are by shop."""

    deliveries = Input(DELIVERIES, deduplicate=ById(lambda r: (r.key, str(r.value)), 3_600_000, key=PAIR))
    pieces = Store("pieces", key=PAIR, value=int64)
    later = Timers(key=PAIR)
    out = Output(BY_ARTICLE)

    def process(self, record: Record[str, tuple[str, int]]) -> None:
        article, more = record.value
        self.pieces.put((record.key, article), self.pieces.get((record.key, article), 0) + more)
        self.later.schedule(record.timestamp + 1_000, (record.key, article))
        self.out.send((record.key, article), more)

    def on_timer(self, timer: Timer[tuple[str, str]]) -> None:
        assert self.pieces.get(timer.key) is not None, "its state has not come with the timer"
        self.out.send(timer.key, 0)


class Shops(Task):
    """Has one entry for a shop, while its records are by shop and article."""

    moved = Input(BY_ARTICLE)
    sums = Store("sums", key=utf8, value=int64)
    known = Store("known", key=PAIR, value=int64)

    def process(self, record: Record[tuple[str, str], int]) -> None:
        shop = record.key[0]
        self.sums.put(shop, self.sums.get(shop, 0) + record.value)
        self.known.put(record.key, 1)
        assert {key[0] for key, _ in self.known.prefix((shop,))} == {shop}


class Other(Stock):
    """Has the article first, which is no record's key."""

    name = "stock"
    deliveries = Input(DELIVERIES)

    def process(self, record: Record[str, tuple[str, int]]) -> None:
        self.pieces.put((record.value[0], record.key), 1)


def deliveries(begin: int, end: int) -> list[Fed]:
    """Return a delivery of each number: another shop, another article."""
    return [(SHOPS[n % 12].encode(), json.encode([ARTICLES[n % 3], n]), AT_MS + n) for n in range(begin, end)]


def counted(end: int) -> tuple[dict[tuple[str, str], int], dict[str, int]]:
    """Return the pieces by shop and article, and by shop, after as many deliveries."""
    by_article, by_shop = Counter[tuple[str, str]](), Counter[str]()
    for n in range(end):
        by_article[SHOPS[n % 12], ARTICLES[n % 3]] += n
        by_shop[SHOPS[n % 12]] += n
    return dict(by_article), dict(by_shop)


def kept(job: MovableJob, stage: int, store: str) -> dict[Any, int]:
    """Return the entries of a store of all its tasks, each of which is where its key belongs."""
    declared = next(each for each in job.job.stages[stage].all_stores() if each.name == store)
    number = job.job.stages[stage].store_ids()[store]
    place, found = partition_by(declared.key), {}
    for partition in range(job.job.partitions):
        for (of, key), value in job.state(partition, stage).items():
            if of == number:
                assert place(key, job.job.partitions) == partition, (store, key, partition)
                assert key not in found
                found[declared.key.decode(key)] = declared.value.decode(value)
    return found


@pytest.mark.parametrize("path", [(2, 6, 3), (3, 1, 4), (2, 3, 6)])
def test_state_and_timers_and_ids_move_with_the_records_key(path: tuple[int, ...]) -> None:
    """More partitions by a rescale, fewer by a fork: nothing is lost, counted twice or left where it was."""
    job = MovableJob(Job("stock", [Stock, Shops], partitions=path[0]), KEPT)
    for turn, partitions in enumerate(path):
        if turn:
            job = job.moved(partitions)
        again = deliveries(60 * (turn - 1), 60 * turn) if turn else []
        job.feed("deliveries", [*again, *deliveries(60 * turn, 60 * (turn + 1))]).run(crashes=2, seed=turn)
        by_article, by_shop = counted(60 * (turn + 1))
        assert kept(job, 0, "pieces") == by_article
        assert kept(job, 1, "sums") == by_shop
        assert kept(job, 1, "known") == dict.fromkeys(by_article, 1)


def test_entries_of_one_record_key_are_one_proof() -> None:
    """All articles of a shop lie where that one key does, which may be by chance."""
    job = MovableJob(Job("stock", [Stock, Shops], partitions=2))
    job.feed("deliveries", [(b"shop1", json.encode([f"a{n}", n]), AT_MS) for n in range(60)]).run()
    with pytest.raises(ConfigError, match=r"cannot tell from 1 key in 2 partitions .* store stock/"):
        job.moved(6, assume_keyed=False)


def test_a_first_part_that_is_no_records_key_is_refused() -> None:
    """The error has the part, where it is and where it would be."""
    job = MovableJob(Job("stock", [Other, Shops], partitions=2))
    job.feed("deliveries", deliveries(0, 60)).run()
    with pytest.raises(ConfigError, match=r"store stock/pieces: key b'(tea|salt|t\\x00e)' is in partition \d, and its"):
        job.moved(6)
    one = MovableJob(Job("one", [Other], partitions=1))
    one.feed("deliveries", deliveries(0, 60)).run()
    with pytest.raises(ConfigError, match=r"store stock/pieces: no record that is still in deliveries has the key b"):
        one.moved(6)
