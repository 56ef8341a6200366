"""Pins on Kafka count by the log's order, also where compaction has left only a part of them."""

from collections.abc import Sequence

from grete.logs.kafka.write.job_metadata import Pins, pinning
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition

AT = TopicPartition("job.notes", 0)


def read(records: Sequence[ExternalRecord]) -> tuple[dict[str, bytes], dict[str, list[bytes | None]]]:
    """Return the entries that count, and those that came too late behind them."""
    entries: dict[str, bytes] = {}
    pins = Pins(entries)
    for offset, (_, key, value, _, headers) in enumerate(records):
        name = (key or b"").decode()
        if pins.count(name, LogRow(offset, 0, 0, key, value, headers)):
            entries.pop(name, None)
            if value is not None:
                entries[name] = value
    return entries, pins.late


def compacted(records: Sequence[ExternalRecord], cleaned: int) -> list[ExternalRecord]:
    """Return the records that a compaction of the first ``cleaned`` ones leaves: the last of each key."""
    last = {record.key: record for record in records[:cleaned]}
    return [*last.values(), *records[cleaned:]]


def race(*entries: bytes | None) -> list[ExternalRecord]:
    """Return a log: the first entry is pinned, the others too late, and their process has written it again."""
    records = [each for entry in entries for each in pinning(AT, {"a": entry, "b": entry}, [None])]
    found, late = read(records)
    for key, values in late.items():
        records += pinning(AT, {key: found.get(key)}, [found.get(key), *values])
    return records


def test_what_came_first_counts() -> None:
    """All that is late is known, each entry by its own key."""
    records = [each for made in (b"1", b"2", b"3") for each in pinning(AT, {"a": made, "b": made}, [None])]
    assert read(records) == ({"a": b"1", "b": b"1"}, {"a": [b"2", b"3"], "b": [b"2", b"3"]})


def test_what_is_written_again_counts_wherever_compaction_stops() -> None:
    """It is over each of the late ones, too: one of them may be what is left; nothing is late any more."""
    records = race(b"1", b"2", b"3")
    for cleaned in range(len(records) + 1):
        assert read(compacted(records, cleaned)) == ({"a": b"1", "b": b"1"}, {}), cleaned


def test_a_later_definition_counts_wherever_compaction_stops() -> None:
    """A start with a newer definition pins over what was written again."""
    records = [*race(b"1", b"2"), *pinning(AT, {"a": b"4", "b": None}, [b"1"])]
    for cleaned in range(len(records) + 1):
        assert read(compacted(records, cleaned)) == ({"a": b"4"}, {}), cleaned


def test_what_is_written_again_does_not_undo_what_came_between() -> None:
    """A newer definition was pinned before the process of the late one wrote the first one again."""
    raced = race(b"1", b"2")
    newer = pinning(AT, {"a": b"4"}, [b"1"])
    found, late = read([*raced[:4], *newer, *raced[4:]])
    assert (found, late) == ({"a": b"4", "b": b"1"}, {"a": [b"1"]})


def test_records_of_earlier_releases_count() -> None:
    """They have no headers: the last one is the entry, as it was."""
    plain = [ExternalRecord(AT, b"a", made, 0) for made in (b"1", None, b"2")]
    assert read(plain) == ({"a": b"2"}, {})
    assert read([*plain, *pinning(AT, {"a": b"3"}, [b"1"])]) == ({"a": b"2"}, {"a": [b"3"]})
