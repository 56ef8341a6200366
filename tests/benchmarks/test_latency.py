"""The latency experiment: a run in which a record is lost, wrong or there twice is no measurement."""

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.latency.job import Change
from benchmarks.latency.reader import Seen, watch

TEXTS = ["One two one", "two three"]
RECORDS = [
    (0, b"one", Change(0, [0, 2], 1)),
    (1, b"two", Change(0, [1], 1)),
    (1, b"two", Change(1, [0], 2)),
    (0, b"three", Change(1, [1], 1)),
]


class Canned:
    """A topic that holds just these records; then it is silent."""

    def __init__(self, records: Sequence[tuple[int, bytes, Change]]) -> None:
        self._records = [(partition, key, msgspec.json.encode(change)) for partition, key, change in records]

    def take(self, _timeout_s: float) -> Sequence[tuple[int, bytes, bytes]]:
        return [self._records.pop(0)] if self._records else []

    def close(self) -> None:
        """Hold nothing."""


def test_a_whole_index_is_accepted_and_its_times_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All records that are due, each once: the run counts, and a document is done with its last record."""
    monkeypatch.setattr("benchmarks.latency.reader.SETTLE_S", 0.0)
    seen = Seen(TEXTS, 2)
    watch(Canned(RECORDS), seen)
    assert (seen.left, seen.records, seen.repeated) == (0, 4, 0)
    assert seen.latest[1] > seen.latest[0] == seen.firsts[1][0] > seen.firsts[0][0] > 0


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (RECORDS[:3], "1 records of 1 documents are missing, the first of document 1"),
        ([*RECORDS[:2], RECORDS[1]], "document 0, word 'two': a record too many"),
        ([RECORDS[2]], "version 1 at"),
        ([(0, b"one", Change(0, [0], 1))], "due: the run does not count"),
    ],
)
def test_a_run_that_is_not_whole_is_invalid(
    records: list[tuple[int, bytes, Change]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record lost, there twice, of a later version than is due, or with other positions ends the run."""
    monkeypatch.setattr("benchmarks.latency.reader.STALL_S_MAX", 0.0)
    monkeypatch.setattr("benchmarks.latency.reader.SETTLE_S", 0.0)
    with pytest.raises(SystemExit, match=why):
        watch(Canned(records), Seen(TEXTS, 2))


def test_where_repeats_are_allowed_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least once after a kill: records come again, none is missing."""
    monkeypatch.setattr("benchmarks.latency.reader.SETTLE_S", 0.0)
    seen = Seen(TEXTS, 2, "repeats")
    watch(Canned([*RECORDS[:2], *RECORDS]), seen)
    assert (seen.left, seen.repeated) == (0, 2)


def test_where_losses_are_allowed_they_are_counted_and_repeats_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most once after a kill: the reader ends when no more comes; a record twice ends the run all the same."""
    monkeypatch.setattr("benchmarks.latency.reader.LOST_S", 0.0)
    seen = Seen(TEXTS, 2, "losses")
    watch(Canned(RECORDS[1:]), seen)
    assert (seen.left, seen.records, seen.latest[0]) == (1, 3, 0.0)
    with pytest.raises(SystemExit, match="a record too many"):
        watch(Canned([RECORDS[0], RECORDS[0]]), Seen(TEXTS, 2, "losses"))
