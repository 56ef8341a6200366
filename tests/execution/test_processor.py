"""Processor: what a record does to state and outputs, and what is left of it when it fails."""

from typing import Any

import pytest

from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Topic,
    bytes_serde,
    int64,
    utf8,
)
from grete.errors import ConfigError, Halted, TaskError
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from tests.execution.harness import Rig

LINES = Topic("lines", key=utf8, value=utf8)
WORDS = Topic("words", key=utf8, value=utf8)
TOTALS = Topic("totals", key=utf8, value=int64)
LETTERS = Topic("letters", key=bytes_serde, value=bytes_serde)


class SplitLines(Task):
    lines = Input(LINES)
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, word)


class CountWords(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(TOTALS)

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        self.out.send(record.key, n)
        if record.value == "fail":
            raise ValueError("told to")


class CountOrLetter(CountWords):
    words = Input(WORDS, errors=DeadLetter(LETTERS))


WORD_COUNT = Job("word-count", stages=[SplitLines, CountWords])


class Keep(Task):
    """Keep what arrives, to look at."""

    lines = Input(LINES)

    def init(self) -> None:
        self.seen: list[Record[str, str]] = []

    def process(self, record: Record[str, str]) -> None:
        self.seen.append(record)


def test_word_count_counts() -> None:
    """Records of a frame update the store and send totals that carry the record's timestamp."""
    rig = Rig(WORD_COUNT, 1)
    rig.frame([(b"a", b"", 10), (b"b", b"", 20), (b"a", b"", 30)])
    assert [("totals", b"a", 1, 10), ("totals", b"b", 1, 20), ("totals", b"a", 2, 30)] == [
        (topic, key, int64.decode(value or b""), timestamp) for topic, key, value, timestamp in rig.external()
    ]
    assert list(rig.task.counts.all()) == [("a", 2), ("b", 1)]


def test_a_record_has_all_that_its_row_has() -> None:
    """Key, value, timestamp, headers, topic, partition and offset arrive; a null key or value is None."""
    rig = Rig(Job("j", stages=[Keep]))
    headers = (("h", b"1"), ("h", b"2"))
    rig.offset = 7
    rig.rows("lines", [(b"k", b"v", 10), (None, None, 20)], [encode_headers(headers), None])
    assert rig.task.seen == [
        Record("k", "v", 10, headers, "lines", 0, 7),
        Record(None, None, 20, (), "lines", 0, 8),
    ]


def test_known_records_of_a_frame_are_skipped() -> None:
    """The first ``skip`` records of a frame are left out (A3); all share its offset and the topic's declared name."""

    class KeepWords(Keep):
        lines = Input(WORDS)

    rig = Rig(Job("j", stages=[SplitLines, KeepWords]), 1)
    headers = (("h", b"3"),)
    rig.frame(
        [(b"a", b"1", 1), (b"b", b"2", 2), (b"c", b"3", 3)], [None, None, encode_headers(headers)], offset=5, skip=2
    )
    rig.frame([(b"d", b"4", 4)], offset=6, skip=1)
    assert rig.task.seen == [Record("c", "3", 3, headers, "words", 0, 5)]


def test_a_damaged_frame_halts() -> None:
    """A frame that cannot be decoded is no task's fault: the error names partition and offset."""
    rig = Rig(WORD_COUNT, 1)
    message = encode_header(Header(MessageType.FRAME, 0, 1, 1, 1)) + b"damaged"
    with pytest.raises(Halted, match=r"word-count\.split-lines\.words\.count-words\[0\] at offset 9"):
        rig.processor.process_frame(TopicPartition(rig.topology.streams[0].topic, 0), 9, message)


@pytest.mark.parametrize("skip", [0, 1])
def test_fail_names_the_record(skip: int) -> None:
    """With "fail" the error names stage, partition, topic, source, offset, index and cause, and chains it."""
    rig = Rig(WORD_COUNT, 1)
    with pytest.raises(TaskError) as caught:
        rig.frame([(b"a", b"", 1), (b"b", b"", 2), (b"c", b"fail", 3), (b"d", b"", 4)], offset=40, skip=skip)
    assert str(caught.value).startswith(
        "stage count-words, partition 0: topic words (word-count.split-lines.words.count-words[0]), offset 40, "
        f"record 2: ValueError: told to ({__file__}, line "
    )
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("key", "value"), [(b"\xff", b""), (b"", b"\xff")])
def test_fail_names_the_record_that_cannot_be_decoded(key: bytes, value: bytes) -> None:
    """A serde failure is the record's error too, and names the serde."""
    rig = Rig(Job("j", stages=[Keep]))
    rig.offset = 100
    said = (
        r"topic lines \(lines\[0\]\), offset 102, record 2: SerdeError: serde utf8.*"
        r"send such records to a dead-letter topic.*DeadLetter"
    )
    with pytest.raises(TaskError, match=said):
        rig.rows("lines", [(b"a", b"", 1), (None, b"", 2), (key, value, 3), (b"d", b"", 4)])
    assert len(rig.task.seen) == 2


def test_errors_of_the_machine_pass_unchanged() -> None:
    """An open write batch beyond its bound is Halted, because it is not the record's fault.

    It is neither a TaskError nor a dead letter (A9).
    """

    class Hoard(Task):
        lines = Input(LINES, errors=DeadLetter(LETTERS))
        store = Store("store", key=utf8, value=utf8)

        def process(self, record: Record[str, str]) -> None:
            self.store.put(record.value, "x" * 5000)

    rig = Rig(Job("j", stages=[Hoard]), uncommitted_state_bytes_max=4096, batch_bytes_max=1024)
    with pytest.raises(Halted, match="uncommitted_state_bytes_max"):
        rig.rows("lines", [(None, b"a", 1)])
    assert rig.external() == []


# --- Batches ---


class Batches(Task):
    words = Input(WORDS)
    counts = Store("counts", key=utf8, value=int64)

    def init(self) -> None:
        self.sizes: list[int] = []

    def process_batch(self, records: list[Record[str, str]]) -> None:
        self.sizes.append(len(records))
        for record in records:
            self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
            if record.value == "fail":
                raise ValueError("told to")


class BatchesOrLetters(Batches):
    words = Input(WORDS, errors=DeadLetter(LETTERS))


def test_a_batch_is_one_call() -> None:
    """process_batch gets all records of a poll batch at once."""
    rig = Rig(Job("j", stages=[Batches]))
    rig.rows("words", [(b"a", b"", 1), (b"b", b"", 2), (b"a", b"", 3)])
    assert rig.task.sizes == [3]
    assert list(rig.task.counts.all()) == [("a", 2), ("b", 1)]


def test_a_batch_that_fails_names_its_range() -> None:
    """With "fail" the error names the offsets of the batch: which record failed is the task's secret."""
    rig = Rig(Job("j", stages=[Batches]))
    with pytest.raises(TaskError, match="offsets 0 to 1, batch of 2 records: ValueError: told to"):
        rig.rows("words", [(b"a", b"", 1), (b"b", b"fail", 2)])


def test_a_batch_with_dead_letters_goes_on_record_by_record() -> None:
    """A batch that fails is undone and repeated in batches of one, so that only the bad records are set aside."""
    rig = Rig(Job("j", stages=[BatchesOrLetters]))
    rig.rows("words", [(b"a", b"", 1), (b"b", b"fail", 2), (b"\xff", b"", 3), (b"a", b"", 4)])
    assert list(rig.task.counts.all()) == [("a", 2)]
    assert [(key, value) for _, key, value, _ in rig.external()] == [(b"b", b"fail"), (b"\xff", b"")]


# --- The life of a task ---


def test_a_rollback_makes_a_new_instance_over_the_committed_state() -> None:
    """After a reset nothing uncommitted is left: attributes, state, outputs (R4)."""
    rig = Rig(WORD_COUNT, 1)
    rig.frame([(b"a", b"", 1)])
    rig.external()
    rig.commit()
    before = rig.task
    rig.frame([(b"a", b"", 2)])
    rig.rollback()
    assert rig.task is not before
    assert rig.task.counts.get("a") == 1
    assert rig.external() == []


def test_init_sees_restored_state_and_cannot_send() -> None:
    """``init`` runs over the restored stores; a send there, which every start would repeat, is refused."""

    class Starts(CountWords):
        loaded = -1

        def init(self) -> None:
            self.loaded = self.counts.get("a", 0)

    job = Job("j", stages=[Starts])
    rig = Rig(job)
    rig.rows("words", [(b"a", b"", 1)])
    rig.commit()
    assert Rig(job, disk=rig.disk).task.loaded == 1

    class Sends(CountWords):
        def init(self) -> None:
            self.out.send("a", 1)

    with pytest.raises(TaskError, match=r"stage sends, partition 0: init raised TaskError: output .* is used outside"):
        Rig(Job("j", stages=[Sends]))


def test_close_is_called_at_the_end_and_before_a_rollback() -> None:
    """Each instance is closed once."""
    closed: list[Task] = []

    class Closes(Keep):
        def close(self) -> None:
            closed.append(self)

    rig = Rig(Job("j", stages=[Closes]))
    first = rig.task
    rig.rollback()
    second = rig.task
    rig.processor.close()
    rig.processor.close()
    assert closed == [first, second]


def test_turns_of_records_without_a_key_are_state() -> None:
    """A replay after a rollback or restart sends records without a key to the same partitions as before."""

    class Forward(Task):
        lines = Input(LINES)
        out = Output(WORDS)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(None, record.value)

    def partitions(rig: Rig) -> list[int]:
        rig.rows("lines", [(None, b"", 1)] * 2)
        return [record.partition.partition for record in rig.processor.take_external()]

    job = Job("j", stages=[Forward])
    rig = Rig(job, external_partitions=5)
    assert partitions(rig) == [0, 1]
    rig.commit()
    assert partitions(rig) == [2, 3]
    rig.rollback()
    assert partitions(rig) == [2, 3]
    assert partitions(Rig(job, disk=rig.disk, external_partitions=5)) == [2, 3]


def test_an_idle_checkpoint_writes_nothing() -> None:
    """A checkpoint in which nothing happened has no dirty key: closing it on a timer costs no changelog data (A1)."""
    rig = Rig(WORD_COUNT, 1)
    rig.frame([(b"a", b"", 1)])
    rig.commit()
    rig.freeze()
    assert list(rig.overlay.frozen_items()) == []


def test_stores_must_keep_their_ids() -> None:
    """State written under other store declarations is refused before it is misread, also by a host that had none."""

    class Reordered(CountWords):
        counts: Any = Store("new", key=utf8, value=int64)
        later = Store("counts", key=utf8, value=int64)

    rig = Rig(WORD_COUNT, 1)
    rig.frame([(b"a", b"", 1)])
    rig.commit()
    rig.disk.names.clear()  # a restore on a new host: only the state remembers
    with pytest.raises(ConfigError, match="store 'new' has id 10, which was 'counts'"):
        Rig(Job("j", stages=[SplitLines, Reordered]), 1, disk=rig.disk)
