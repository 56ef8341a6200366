"""A job whose outputs betray every mistake: two stages, each of which chains what it has done so far, by key.

Both stages draw random numbers, so work that is done again gives other outputs: dropping repeats by number would not
do. ``Spread`` chains the inputs of a source and sends each to an account that it draws; so every partition of the
stream between them is written by all tasks. ``Chain`` chains what an account receives, and sends each link outside.
In deterministic mode they draw nothing: a number comes of what it stands for.
"""

import hashlib
import random
from functools import cache
from typing import Literal, NamedTuple

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8

Mode = Literal["aligned", "deterministic"]
PARTITIONS = 4
ACCOUNTS = 48
NONCE_BITS = 40


class Tail(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The end of a chain: how many links it has, and the digest of all of them."""

    count: int = 0
    digest: str = ""


class Link(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Input ``number`` of ``source``, and the source's chain with it."""

    source: str
    number: int  # as the input says
    nonce: int
    tail: Tail


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An output of the job, keyed by account: a link, and the account's chain with it."""

    link: Link
    nonce: int
    tail: Tail


class Given(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An input, keyed by its source: the source's inputs are numbered from 1. ``padding`` makes frames differ."""

    number: int
    padding: str = ""


def extended(tail: Tail, what: str, nonce: int) -> Tail:
    """Return the chain with one more link."""
    text = f"{tail.digest}|{tail.count + 1}|{what}|{nonce}"
    return Tail(tail.count + 1, hashlib.blake2b(text.encode(), digest_size=10).hexdigest())


links = Topic("links", key=utf8, value=json(Link))  # by account


def drawn(_task: Task, _what: str) -> int:
    """Return another number each time."""
    return random.getrandbits(NONCE_BITS)


def digested(_task: Task, what: str) -> int:
    """Return the number of this text."""
    return int.from_bytes(hashlib.blake2b(what.encode(), digest_size=NONCE_BITS // 8).digest(), "big")


class Spread(Task):
    """Inputs → links, each to an account drawn by chance."""

    nonce = drawn
    sources = Store("sources", key=utf8, value=json(Tail))
    out = Output(links)

    def process(self, record: Record[str, Given]) -> None:
        what = f"{record.key}:{record.value.number}"
        nonce = self.nonce(what)
        tail = extended(self.sources.get(record.key, Tail()), what, nonce)
        self.sources.put(record.key, tail)
        self.out.send(f"account-{nonce % ACCOUNTS}", Link(record.key, record.value.number, nonce, tail))


class Chain(Task):
    """Links → entries."""

    nonce = drawn
    arrivals = Input(links)
    accounts = Store("accounts", key=utf8, value=json(Tail))
    out: Output[str, Entry]

    def process(self, record: Record[str, Link]) -> None:
        nonce = self.nonce(record.value.tail.digest)
        tail = extended(self.accounts.get(record.key, Tail()), record.value.tail.digest, nonce)
        self.accounts.put(record.key, tail)
        self.out.send(record.key, Entry(record.value, nonce, tail))


class ChainJob(NamedTuple):
    """The job, the topic that it reads and the one that it writes."""

    job: Job
    given: str
    entries: str


@cache
def chain_job(suffix: str = "", mode: Mode = "aligned") -> ChainJob:
    """Return the job under names of its own: several may live on one broker."""
    given = Topic(f"given{suffix}", key=utf8, value=json(Given))
    entries = Topic(f"entries{suffix}", key=utf8, value=json(Entry))  # by account
    nonce = {"nonce": drawn if mode == "aligned" else digested}
    spread = type("Spread", (Spread,), {"inputs": Input(given), **nonce})
    chain = type("Chain", (Chain,), {"out": Output(entries), **nonce})
    job = Job(f"chain{suffix}", stages=[spread, chain], partitions=PARTITIONS, mode=mode)
    return ChainJob(job, given.name, entries.name)
