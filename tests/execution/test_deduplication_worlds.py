"""Inputs from an outside that repeats and reorders, tasks that crash at any time, against a plain oracle; and mutants.

A world is drawn from its seed: what is fed, how far tasks process it, and which of them die, with or without a disk.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grete import ById, BySequence, Input, Job, Output, Record, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.api.topics.deduplicate import Deduplicate, Range
from grete.execution.task_code import deduplication
from grete.execution.task_code.deduplication import Deduplicator
from grete.testing import Kit

HORIZON_MS = 1_000
START = 1_700_000_000_000
SEEDS = range(10)  # of them, each mutant is noticed by several
STEPS = 30
numbers = Topic("numbers", key=utf8, value=int64)
once = Topic("once", key=utf8, value=int64)
_KINDS: dict[str, Deduplicate[str, int]] = {
    "id": ById(lambda record: f"{record.key}/{record.value}", HORIZON_MS),
    "sequence": BySequence(lambda record: record.key, lambda record: record.value, HORIZON_MS),
}

Sent = tuple[int, str, int, int]  # partition, session, number, timestamp (ms)


def job_of(kind: str, mode: Mode) -> Job:
    """Return a job that sends on what is new."""

    class Pass(Task):
        numbers = Input(globals()["numbers"], deduplicate=_KINDS[kind])
        once = Output(globals()["once"])

        def process(self, record: Record[str, int]) -> None:
            self.once.send(record.key, record.value)

    return Job("worlds", [Pass], partitions=2, mode=mode)


class Outside:
    """The writers of the topic: sessions that number, and a network that repeats, delays and sometimes stalls."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._next: Counter[tuple[int, str]] = Counter()
        self._sent: list[Sent] = []
        self._delayed: list[Sent] = []
        self._at = START

    def some(self) -> list[Sent]:
        """Return the next records as they arrive."""
        draw, arriving = self._draw, self._delayed
        self._delayed = []
        self._at += draw.choice((0, 10, 100, HORIZON_MS // 2, HORIZON_MS, 3 * HORIZON_MS))
        for _ in range(draw.randrange(1, 8)):
            place = draw.randrange(2), draw.choice("ab")
            self._next[place] += 1
            self._sent.append((*place, self._next[place], self._at + draw.randrange(-50, 50)))
            (self._delayed if draw.random() < 0.2 else arriving).append(self._sent[-1])
        arriving += draw.choices(self._sent[-20:], k=draw.randrange(4))
        draw.shuffle(arriving)
        return arriving


def wanted(kind: str, sent: Sequence[Sent]) -> Counter[tuple[str, int]]:
    """Return the records that are new: a plain set for each id or session, and the time of its end."""
    found, now = Counter[tuple[str, int]](), defaultdict[int, int](int)
    seen, since = defaultdict[Any, set[int]](set), dict[Any, int]()
    for partition, session, number, timestamp in sent:
        place = (partition, session, number) if kind == "id" else (partition, session)
        if place in since and since[place] + HORIZON_MS <= now[partition]:
            seen[place], since[place] = set(), 0
        if number not in seen[place]:
            seen[place].add(number)
            since[place] = max(since.get(place, 0), timestamp, now[partition])
            found[session, number] += 1
        now[partition] = max(now[partition], timestamp)
    return found


def play(kind: str, mode: Mode, seed: int) -> tuple[bool, int]:
    """Return whether a world came out as wanted, and how many records were repeats."""
    draw = random.Random(seed)
    kit, outside, sent = Kit(job_of(kind, mode)), Outside(draw), list[Sent]()
    for _ in range(STEPS):
        match draw.randrange(5):
            case 0 | 1:
                for partition, session, number, timestamp in outside.some():
                    kit.feed(numbers, session, number, timestamp=timestamp, partition=partition)
                    sent.append((partition, session, number, timestamp))
            case 2:
                kit.process()
            case 3:
                kit.crash("pass", draw.randrange(2), other_host=draw.random() < 0.5)
            case _:
                kit.run(crashes=draw.randrange(3), seed=draw.randrange(1_000))
    kit.run(crashes=2, seed=seed)
    expected = wanted(kind, sent)
    found = Counter((record.key, record.value) for record in kit.outputs(once))
    return found == expected, len(sent) - expected.total()


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("kind", ["id", "sequence"])
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(10, 25), marks=pytest.mark.prove)])
def test_each_record_counts_once_in_any_world(kind: str, mode: Mode, seeds: range) -> None:
    """Repeated, late and reordered records count once, whatever crashes; and most worlds have something to drop."""
    played = [play(kind, mode, seed) for seed in seeds]
    assert [seed for seed, (right, _) in zip(seeds, played, strict=True) if not right] == []
    assert sum(repeats for _, repeats in played) > 10 * len(seeds)


class _Forgetful:
    """A store beside the overlay: what is in it survives a rollback, and no crash of the host brings it back."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        return self._kept.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Put."""
        self._kept[key] = value

    def delete(self, key: bytes) -> None:
        """Delete."""
        self._kept.pop(key, None)

    def scan(self, start: bytes) -> Any:
        """Yield entries from ``start`` on."""
        return iter(sorted((key, value) for key, value in self._kept.items() if key >= start))


def not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """Keep the numbers seen outside of the state."""
    made = Deduplicator.__init__

    def make(self: Deduplicator, *arguments: Any) -> None:
        made(self, *arguments)
        self._store = _Forgetful()  # type: ignore[assignment]  # as far as it is used

    patch.setattr(Deduplicator, "__init__", make)


def horizon_too_long(patch: pytest.MonkeyPatch) -> None:
    """It ends a ms late, and twice as late."""
    patch.setattr(
        Deduplicator,
        "_expired",
        lambda self, key, seen: int.from_bytes(seen[:8], signed=True) + 2 * self._horizon_ms <= self._now(key),
    )


def horizon_from_the_record(patch: pytest.MonkeyPatch) -> None:
    """It counts from the timestamp of a late record."""
    patch.setattr(Deduplicator, "_time_of", lambda _self, _key, record: record.timestamp - HORIZON_MS // 2)


def gaps_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the highest number is kept: one that comes late is taken for a repeat."""
    added = deduplication.with_number

    def highest(ranges: Sequence[Range], number: int) -> tuple[Range, ...] | None:
        wider = added(ranges, number)
        return None if wider is None else ((wider[0][0], wider[-1][1]),)

    patch.setattr(deduplication, "with_number", highest)


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        (not_rolled_back, "id"),
        (not_rolled_back, "sequence"),
        (horizon_too_long, "id"),
        (horizon_too_long, "sequence"),
        (horizon_from_the_record, "id"),
        (gaps_forgotten, "sequence"),
    ],
)
def test_a_mutant_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deduplication that is wrong in one way fails in one of the same worlds."""
    mutant(monkeypatch)
    assert not all(play(kind, "aligned", seed)[0] for seed in SEEDS)
