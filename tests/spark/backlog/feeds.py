"""A backlog for each job: a day of event time, and one partition has twenty times the records of the other.

Everything comes of a seed. Within a partition records are out of order, by less than the job forgives.
"""

import json
import random
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from grete.protocol.partitioner import partition_of

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
SHARE = 20  # times as many records in partition 0 as in partition 1
PARTITIONS = 2
SCHEMA_ID = 1  # of the payments, in the registry: they are what it is told first

Random = random.Random


class Fed(NamedTuple):
    """A record. ``shown``: its value as text, for the batch; None: it has none, or nothing that can be decoded."""

    topic: str
    partition: int
    key: str
    value: bytes | None
    at: int
    shown: str | None


def backlog(name: str, records: int, start: int, seed: int = 1) -> list[Fed]:
    """Return the backlog of a job from ``start`` (ms) on: about ``records`` in partition 0, in the order of the log."""
    rng, disorder = Random(f"{name} {seed}"), DISORDER_MS.get(name, 5 * SECOND_MS)
    fed = []
    for partition, count in enumerate((records, records // SHARE)):
        fed += [row._replace(at=start + row.at) for row in FEEDS[name](rng, partition, count)]
    places = sorted({(row.topic, row.partition) for row in fed})
    late = {
        place: sorted(((row.at + rng.randrange(disorder), row) for row in fed if row[:2] == place), key=lambda x: x[0])
        for place in places
    }
    return [row for place in places for _, row in late[place]]


def _keys(prefix: str, partition: int, count: int) -> list[str]:
    """Return that many keys that belong in a partition."""
    found, number = list[str](), 0
    while len(found) < count:
        key = f"{prefix}{number}"
        number += 1
        if partition_of(key.encode(), PARTITIONS) == partition:
            found.append(key)
    return found


def _text(topic: str, partition: int, key: str, text: str | None, at: int) -> Fed:
    return Fed(topic, partition, key, None if text is None else text.encode(), at, text)


def _visits(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Clicks with a mean pause of 20 minutes, so that visits of many lengths come of a gap of 30."""
    visitors = _keys("visitor", partition, count // 72 + 1)
    for number in range(count):
        yield _text("clicks", partition, rng.choice(visitors), f"page{number}", rng.randrange(DAY_MS))


def _interval_join(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Orders with none, one or two payments, some of them at the bounds of the ten minutes, and beyond."""
    for number, key in enumerate(_keys("order", partition, count // 2)):
        at = rng.randrange(DAY_MS)
        yield _text("orders", partition, key, f"item{number}", at)
        for each in range(rng.choice((0, 1, 1, 2))):
            after = rng.choice((-1, 0, 10 * MINUTE_MS, 10 * MINUTE_MS + 1, rng.randrange(12 * MINUTE_MS)))
            yield _text("payments", partition, key, f"payer{number}.{each}", max(0, at + after))


def _billing(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Orders at even ms; every tenth record is a price, at an odd one: which comes first is never a matter of taste."""
    items = _keys("item", partition, 20)
    for number in range(count - count // 10):
        order = json.dumps({"number": number, "pieces": rng.randrange(1, 9)})
        yield _text("orders", partition, rng.choice(items), order, 2 * rng.randrange(DAY_MS // 2))
    for moment in rng.sample(range(DAY_MS // 2), count // 10 + 1):
        cents = rng.choice([None, *range(100, 107)])
        text = None if cents is None else str(cents)
        yield _text("prices", partition, rng.choice(items), text, 2 * moment + 1)


def _once_a_day(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Thirty hours, so that what was told in the first six is forgotten."""
    machines = _keys("machine", partition, count // 60 + 1)
    for _ in range(count):
        at = rng.randrange(DAY_MS + 6 * HOUR_MS)
        yield _text("alarms", partition, rng.choice(machines), rng.choice(("hot", "oil", "open", "slow")), at)


def _rate_limit(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Bursts; many of their pauses are those in which exactly one token comes back."""
    clients, number = _keys("client", partition, count // 120 + 1), 0
    while number < count:
        client, at = rng.choice(clients), rng.randrange(DAY_MS - HOUR_MS)
        for _ in range(rng.randrange(1, 15)):
            yield _text("requests", partition, client, f"request{number}", at)
            at += rng.choice((0, 100, 12_000, 4_000, rng.randrange(20_000)))
            number += 1


def _top_pages(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Views of some minutes of the day, so that each has a ranking; few pages are viewed much."""
    pages = _keys("page", partition, 30)
    minutes = Random("minutes").sample(range(DAY_MS // MINUTE_MS), 120)  # the same ones in both partitions
    for number in range(count):
        page = pages[min(int(rng.expovariate(0.2)), len(pages) - 1)]
        at = rng.choice(minutes) * MINUTE_MS + rng.randrange(MINUTE_MS)
        yield _text("views", partition, page, f"user{number}", at)


def _dead_letters(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Payments, large and small, among them what is no payment."""
    bad = ("", "{", '{"customer": "ann"}', '{"customer": "ann", "cents": "12"}', "[1]", '{"cents": 500000}', "null")
    for key in _keys("payment", partition, count):
        cents = rng.choice((rng.randrange(-500, 200_000), 100_000, 99_999, 0, 1))
        text = json.dumps({"customer": f"customer{rng.randrange(50)}", "cents": cents})
        yield _text("payments", partition, key, rng.choice(bad) if rng.random() < 0.1 else text, rng.randrange(DAY_MS))


def _sinks(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Each item's pieces change again and again."""
    items = _keys("item", partition, count // 30 + 1)
    for number in range(count):
        item = rng.choice(items)
        yield _text("stock", partition, item, json.dumps({"item": item, "pieces": number}), rng.randrange(DAY_MS))


def _registry(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Payments in Avro, written by hand; of twenty one is none: no bytes of a registry, or an id that it lacks."""
    customers = _keys("customer", partition, count // 50 + 1)
    for _ in range(count):
        customer, cents, at = rng.choice(customers), rng.randrange(-1_000, 100_000), rng.randrange(DAY_MS)
        if rng.random() < 0.05:
            bad = rng.choice((b'{"cents": 5}', struct.pack(">bI", 0, 4_000) + b"\2"))
            yield Fed("payments", partition, customer, bad, at, None)
        else:
            value = struct.pack(">bI", 0, SCHEMA_ID) + _avro_long(cents)
            yield Fed("payments", partition, customer, value, at, str(cents))


def _avro_long(number: int) -> bytes:
    """Return an Avro long: zigzag, seven bits a byte, the lowest first."""
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _calls(rng: Random, partition: int, count: int) -> Iterator[Fed]:
    """Orders of many things, so that most of them ask for a price; the service has none of some things."""
    for key in _keys("order", partition, count):
        order = json.dumps({"sku": f"thing{rng.randrange(count)}", "count": rng.randrange(1, 9)})
        yield _text("orders", partition, key, order, rng.randrange(DAY_MS))


FEEDS: dict[str, Callable[[Random, int, int], Iterator[Fed]]] = {
    "visits": _visits,
    "interval_join": _interval_join,
    "billing": _billing,
    "once_a_day": _once_a_day,
    "rate_limit": _rate_limit,
    "top_pages": _top_pages,
    "dead_letters": _dead_letters,
    "sinks": _sinks,
    "registry": _registry,
    "calls": _calls,
}
DISORDER_MS = {"visits": MINUTE_MS, "interval_join": MINUTE_MS, "billing": 10 * MINUTE_MS, "top_pages": 10 * SECOND_MS}
