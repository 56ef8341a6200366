"""Each kind of window, out of order and through crashes, against a plain computation over all records at once."""

import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from grete.api.stateful.windows import WindowStore
from grete.api.tasks.mode import Mode
from grete.testing import Kit
from tests.windows.jobs import Hopping, Result, Session, Sliding, Tumbling, job_of, late_topic, lines, results, texts

Records = list[tuple[int, str]]  # of one key: timestamp, text
Batch = Callable[[Records], list[tuple[int, int, Records]]]  # start, end, records of each window
GRACE = 40
FAR = 1_000_000


def hopping(size: int, advance: int) -> Batch:
    """Return the windows that begin every ``advance`` ms."""

    def windows(records: Records) -> list[tuple[int, int, Records]]:
        first, last = min(records)[0] - size, max(records)[0]
        starts = range(first // advance * advance, last + 1, advance)
        return [(s, s + size, [r for r in records if s <= r[0] < s + size]) for s in starts]

    return windows


def sliding(difference: int) -> Batch:
    """Return the windows that end with a record, and those that begin behind one."""

    def windows(records: Records) -> list[tuple[int, int, Records]]:
        starts = sorted({at - difference for at, _ in records} | {at + 1 for at, _ in records})
        return [(s, s + difference + 1, [r for r in records if s <= r[0] <= s + difference]) for s in starts]

    return windows


def sessions(gap: int) -> Batch:
    """Return the runs of records that are no more than ``gap`` ms apart."""

    def windows(records: Records) -> list[tuple[int, int, Records]]:
        found: list[Records] = []
        for record in sorted(records):
            if not found or record[0] > found[-1][-1][0] + gap:
                found.append([])
            found[-1].append(record)
        return [(run[0][0], run[-1][0] + 1, run) for run in found]

    return windows


KINDS: dict[str, tuple[Callable[[], WindowStore[str, list[str]]], Batch]] = {
    "tumbling": (lambda: Tumbling("w", 25, grace_ms=GRACE, **texts()), hopping(25, 25)),
    "hopping": (lambda: Hopping("w", 25, 10, grace_ms=GRACE, **texts()), hopping(25, 10)),
    "hopping, even": (lambda: Hopping("w", 30, 10, grace_ms=GRACE, **texts()), hopping(30, 10)),
    "sliding": (lambda: Sliding("w", 17, grace_ms=GRACE, **texts()), sliding(17)),
    "sliding, dense": (lambda: Sliding("w", 3, grace_ms=GRACE, **texts()), sliding(3)),
    "session": (lambda: Session("w", 12, merge=lambda a, b: a + b, grace_ms=GRACE, **texts()), sessions(12)),
}


def feed(kit: Kit, seed: int, count: int = 120, disorder: int = GRACE) -> dict[str, Records]:
    """Feed records out of order by at most ``disorder`` ms in each partition; return them by key."""
    rand, fed = random.Random(seed), defaultdict[str, Records](list)
    at = [0] * kit.job.partitions
    for number in range(count):
        partition = rand.randrange(kit.job.partitions)
        at[partition] += rand.choice((0, 1, 5, 9, 30))
        key, timestamp = f"{partition}{rand.choice('ab')}", at[partition] - rand.randint(0, disorder)
        fed[key].append((timestamp, str(number)))
        kit.feed(lines, key, str(number), timestamp=timestamp, partition=partition)
    for partition in range(kit.job.partitions):
        kit.feed(lines, "end", "", timestamp=FAR, partition=partition)
    return fed


def sorted_texts(result: Result) -> Result:
    """Return the result with its texts in order: they are appended as they come."""
    return result._replace(value="+".join(sorted(result.value.split("+"), key=int)))


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_those_of_a_batch(kind: str, seed: int, mode: Mode) -> None:
    """Two partitions of different times, every record within the grace, four crashes: each window once, and whole."""
    declare, batch = KINDS[kind]
    kit = Kit(job_of(declare(), mode), partitions=2)
    fed = feed(kit, seed)
    kit.run(crashes=4, seed=seed)
    expected = [
        Result(key, start, end, "+".join(sorted((text for _, text in inside), key=int)))
        for key, records in fed.items()
        for start, end, inside in batch(records)
        if inside
    ]
    found = [sorted_texts(result) for result in results(kit) if result.key != "end"]
    assert sorted(found) == sorted(expected)
    assert kit.pairs(late_topic) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_final_results_hold_what_was_not_late(kind: str, seed: int) -> None:
    """More disorder than grace: no window closes twice, and each holds none but the records that were not late.

    Of sessions the late ones decide which are one; so there only the records are compared.
    """
    declare, batch = KINDS[kind]
    kit = Kit(job_of(declare()))
    fed = feed(kit, seed, disorder=3 * GRACE)
    kit.run(crashes=2, seed=seed)
    late = {text for _, text in kit.pairs(late_topic)}
    assert late
    found = [sorted_texts(result) for result in results(kit) if result.key != "end"]
    assert len({(result.key, result.start) for result in found}) == len(found)
    taken = {text for result in found for text in result.value.split("+")}
    every = {text for records in fed.values() for _, text in records}
    assert not taken & late
    if kind.startswith("sliding"):  # a record may be too late for its own window, and not for those of newer ones
        assert taken <= every - late
    else:
        assert taken == every - late
    if kind == "session":
        return
    in_time = {key: [record for record in records if record[1] not in late] for key, records in fed.items()}
    whole = {
        (key, start, end): {text for _, text in inside}
        for key, records in in_time.items()
        for start, end, inside in batch(records)
    }
    for result in found:
        assert set(result.value.split("+")) <= whole[result.key, result.start, result.end]


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_of_the_end_is_kept_up_to_date(kind: str, mode: Mode) -> None:
    """With ``emit="end"`` the last result of each window before the final one says the same, through crashes."""
    declared = KINDS[kind][0]()
    vars(declared)["emit"] = "end"
    kit = Kit(job_of(declared, mode), partitions=2)
    feed(kit, 7)
    kit.run(crashes=4, seed=7)
    last: dict[tuple[str, int], Result] = {}
    told, finals = 0, 0
    for result in results(kit):
        if result.final:
            assert last.pop((result.key, result.start)).value == result.value
            finals += 1
            continue
        told += 1
        for start in result.replaces:
            last.pop((result.key, start), None)
        last[result.key, result.start] = result
    assert last == {}
    assert told > finals > 40


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_closed_windows(kind: str) -> None:
    """Once all windows are closed, the store has only those of the last record."""
    kit = Kit(job_of(KINDS[kind][0]()))
    feed(kit, 1)
    kit.run()
    (stage,) = kit.job.stages
    keys = [key[1] if isinstance(key, tuple) else key for key in kit.state(stage.windows["windowed"].panes)]
    assert set(keys) == {"end"}
