"""The contract of every log: the numbered statements of grete.ports.Log."""

from collections.abc import Callable

import pytest

from grete.errors import ConfigError, OffsetOutOfRange
from grete.ports import Delivery, ExternalRecord, Log
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.testing.contracts.hidden import HiddenClauses
from grete.testing.contracts.log_world import A0, A1, OUT, LogWorld, record, shown, values

MiB = 1 << 20
LOOKS_MAX = 10_000  # of 10 ms each: a log may take a while to tell one process what another has said


def fill(log: Log, count: int, size: int = 10) -> None:
    """Append ``count`` messages to A0."""
    for number in range(count):
        log.send(0, number, A0, b"%d" % number + b" " * (size - len(b"%d" % number)))
    log.poll()


class LogContract(HiddenClauses):
    """The contract of a log. Subclass it in a test module, and override the fixture ``world``.

        class TestMyLog(LogContract):
            @pytest.fixture
            def world(self, tmp_path):
                return LogWorld(lambda: MyLog(tmp_path))

    A log that compares and appends (``fence``) keeps FencedLogContract, too.
    """

    def test_a_topic_is_made_once(self, world: LogWorld, log: Log) -> None:
        """Making a topic again with the same number of partitions changes nothing, on any connection."""
        log.send(0, 0, A0, b"kept")
        log.poll()
        world.open().create_topic("a", 2)
        assert (log.partitions("a"), values(log, A0)) == (2, [b"kept"])

    def test_another_number_of_partitions_is_refused(self, log: Log) -> None:
        """A topic that exists with another number of partitions is a ConfigError that names both numbers."""
        with pytest.raises(ConfigError, match=r"topic a has 2 partitions, not 3"):
            log.create_topic("a", 3)
        assert log.partitions("a") == 2

    @pytest.mark.parametrize(("name", "partitions"), [("", 1), ("a/b", 1), ("x" * 121, 1), ("b", 0), ("b", 65_537)])
    def test_bad_topics_are_refused(self, log: Log, name: str, partitions: int) -> None:
        """Bad names and impossible numbers of partitions are ConfigErrors and leave nothing behind."""
        with pytest.raises(ConfigError):
            log.create_topic(name, partitions)
        assert log.topics() == ["a", "out"]

    def test_topics_are_listed_sorted(self, log: Log) -> None:
        """All names are listed, sorted; a topic that is not there has no partitions."""
        log.create_topic("Z", 1)
        assert (log.topics(), log.partitions("b")) == (["Z", "a", "out"], None)

    @pytest.mark.parametrize("partition", [TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", -1)])
    def test_an_unknown_partition_is_refused(self, log: Log, partition: TopicPartition) -> None:
        """Every use of a partition that is not there is a ConfigError at the call, not at the poll.

        It names the partition, and how many the topic has.
        """
        named = r"topic a has 2\b" if partition.topic == "a" else r"\bb\b.* create the topic first"
        uses: list[Callable[[], object]] = [
            lambda: log.bounds(partition),
            lambda: log.all_bounds([A0, partition]),
            lambda: log.read(partition, 0, 1),
            lambda: log.trim(partition, 0),
            lambda: log.send(0, 0, partition, b""),
            lambda: log.send(0, 0, A0, b"", outputs=[record(b"")._replace(partition=partition)]),
            lambda: log.produce(0, 0, [record(b"")._replace(partition=partition)]),
        ]
        for use in uses:
            with pytest.raises(ConfigError, match=named):
                use()
        assert log.poll() == []

    def test_sends_are_appended_in_order(self, log: Log) -> None:
        """Statement 1: messages to one partition are in the order of the sends, whatever goes elsewhere in between."""
        for number in range(30):
            log.send(0, number, (A0, A1)[number % 2], b"%d" % number)
        log.poll()
        assert [b"%d" % number for number in range(0, 30, 2)] == values(log, A0)
        assert [b"%d" % number for number in range(1, 30, 2)] == values(log, A1)

    def test_each_send_has_one_delivery(self, log: Log) -> None:
        """Statement 2: each send is reported once, with owner, token, offset and append time."""
        log.send(5, 50, A0, b"x")
        log.send(6, 60, A0, b"y")
        log.send(5, 51, A1, b"z")
        assert [(each.owner, each.token, each.offset) for each in sorted(log.poll())] == [
            (5, 50, 0),
            (5, 51, 0),
            (6, 60, 1),
        ]
        assert log.poll() == []

    def test_a_delivered_message_is_there_for_all(self, world: LogWorld, log: Log) -> None:
        """Statement 2: what was delivered is read by other connections, also after this one is gone."""
        log.send(0, 0, A0, b"x", sync=True)
        log.poll()
        log.close()
        assert values(world.open(), A0) == [b"x"]

    def test_what_was_not_polled_is_lost(self, world: LogWorld, log: Log) -> None:
        """Statement 2: a connection that ends before its poll leaves nothing."""
        log.send(0, 0, A0, b"x")
        log.produce(0, 1, [record(b"p")])
        log.close()
        other = world.open()
        assert (other.poll(), other.bounds(A0), other.bounds(OUT)) == ([], (0, 0), (0, 0))

    def test_connections_share_the_offsets(self, world: LogWorld, log: Log) -> None:
        """Statement 3: two writers of one partition continue each other's offsets."""
        other = world.open()
        offsets = []
        for number in range(6):
            writer = (log, other)[number % 2]
            writer.send(0, 0, A0, b"%d" % number)
            offsets += [delivery.offset for delivery in writer.poll()]
        assert offsets == list(range(6))
        assert values(log, A0) == [b"%d" % number for number in range(6)]

    def test_an_internal_message_comes_back_as_it_was_sent(self, world: LogWorld, log: Log) -> None:
        """An internal message is a value with no key and no headers; its timestamp is its append time."""
        log.send(0, 0, A0, b"")
        log.poll()
        assert log.read(A0, 0, 1) == [(0, world.time, world.time, None, b"", None)]

    def test_append_times_never_go_back(self, world: LogWorld, log: Log) -> None:
        """A1: the append time is the later of the partition's last one and the clock, for writer and reader."""
        times = []
        for world.now_ms in (1_000, 3_000, 2_000, 4_000):
            log.send(0, 0, A0, b"x")
            times += [delivery.append_time_ms for delivery in log.poll()]
        assert times == [row.append_time_ms for row in log.read(A0, 0, MiB)] == sorted(times)
        assert times == ([1_000, 3_000, 3_000, 4_000] if world.sets_clock else [world.time] * 4)

    def test_plain_records_have_one_delivery(self, log: Log) -> None:
        """Produced records are reported together, by the offset of the last one; none at all by offset -1."""
        log.produce(1, 10, [record(b"x"), record(b"y")])
        log.produce(1, 11, [])
        log.produce(1, 12, [record(b"z")])
        assert [(delivery.token, delivery.offset) for delivery in sorted(log.poll())] == [(10, 1), (11, -1), (12, 2)]
        assert values(log, OUT) == [b"x", b"y", b"z"]

    @pytest.mark.parametrize("key", [None, b"", b"k"])
    @pytest.mark.parametrize("value", [None, b"", b"v\x00"])
    @pytest.mark.parametrize("headers", [None, encode_headers([("h", b"1"), ("h", b""), ("h", None)])])
    def test_plain_records_come_back_as_produced(
        self, log: Log, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> None:
        """Null and empty are different; timestamps are the record's own, before 1970 too."""
        log.produce(0, 0, [ExternalRecord(OUT, key, value, -5, headers)])
        log.poll()
        ((offset, _, *row),) = log.read(OUT, 0, 1)
        assert (offset, *row) == (0, -5, key, value, headers)

    def test_outputs_appear_with_their_message(self, world: LogWorld, log: Log) -> None:
        """S1: no reader sees outputs before their message, nor the message without them."""
        log.transactional(A0)
        log.send(0, 0, A0, b"data")
        log.send(0, 1, A0, b"commit", sync=True, outputs=[record(b"x"), record(b"y")])
        other = world.open()
        assert (values(other, A0), values(other, OUT)) == ([], [])
        assert [delivery[:5] for delivery in log.poll()] == [(0, 0, 0, world.time, False), (0, 1, 1, world.time, False)]
        assert log.bounds(A0)[1] >= 2
        assert (shown(other, A0, 2), shown(other, OUT, 2)) == ([b"data", b"commit"], [b"x", b"y"])

    def test_who_sends_last_owns_a_transactional_partition(self, world: LogWorld, log: Log) -> None:
        """S1: once another connection has sent with a higher fence, nothing of this one's appears, outputs included."""
        log.transactional(A0)
        log.send(0, 0, A0, b"one", sync=True, fence=1)
        assert not log.poll()[0].fenced
        other = world.open()
        other.transactional(A0)
        other.send(0, 0, A0, b"two", sync=True, fence=2)
        assert not other.poll()[0].fenced
        log.send(0, 1, A0, b"three", sync=True, fence=1, outputs=[record(b"stale")])
        assert [(delivery.token, delivery.fenced) for delivery in log.poll()] == [(1, True)]
        assert (shown(other, A0, 2), values(other, OUT)) == ([b"one", b"two"], [])

    def test_bounds_follow_appends_and_trims(self, log: Log) -> None:
        """Statement 3: offsets start at 0; a trim moves the start only."""
        assert log.bounds(A0) == (0, 0)
        fill(log, 5)
        assert log.bounds(A0) == (0, 5)
        log.trim(A0, 3)
        assert log.bounds(A0) == (3, 5)
        fill(log, 1)
        assert (log.bounds(A0), [row.offset for row in log.read(A0, 3, MiB)]) == ((3, 6), [3, 4, 5])

    def test_bounds_of_many_are_those_of_each(self, log: Log) -> None:
        """They are asked for together, each once."""
        fill(log, 5)
        log.trim(A0, 3)
        assert (log.all_bounds([A0, OUT, A1, A0]), log.all_bounds([])) == ({A0: (3, 5), OUT: (0, 0), A1: (0, 0)}, {})

    def test_what_is_expected_is_read(self, log: Log) -> None:
        """``expect`` changes no result: a read may begin elsewhere, and a read out of range raises OffsetOutOfRange."""
        fill(log, 5)
        log.trim(A0, 2)
        for offset, read in ((2, 2), (4, 3), (3, 3)):
            log.expect({A0: (offset, 5), A1: (0, 0)})
            assert [row.offset for row in log.read(A0, read, MiB)] == list(range(read, 5))
            assert log.read(A1, 0, MiB) == []
        for offset in (1, 6):
            log.expect({A0: (offset, 5)})
            with pytest.raises(OffsetOutOfRange, match=rf"a\[0\]: offset {offset} is outside of 2 to 5"):
                log.read(A0, offset, MiB)

    def test_reading_starts_at_the_offset(self, log: Log) -> None:
        """Statement 4: nothing before the offset is returned; at the end there is nothing, and no waiting."""
        fill(log, 5)
        assert [[row.offset for row in log.read(A0, offset, MiB)] for offset in (0, 3, 4, 5)] == [
            [0, 1, 2, 3, 4],
            [3, 4],
            [4],
            [],
        ]

    def test_reading_is_bounded_by_bytes(self, log: Log) -> None:
        """At least one message, else no more than the budget and one message beyond it."""
        fill(log, 50, 1_000)
        sizes = [len(log.read(A0, 0, budget)) for budget in (0, 1, 1_000, 10_000)]
        assert sizes[:3] == [1, 1, 1]
        assert 8 <= sizes[3] <= 10
        assert len(log.read(A0, 0, MiB)) == 50

    def test_tiny_messages_are_bounded_too(self, log: Log) -> None:
        """Empty messages count as something, so that a read of a long partition ends."""
        for _ in range(500):
            log.send(0, 0, A0, b"")
        log.poll()
        assert len(log.read(A0, 0, 1_000)) < 100

    def test_out_of_range_is_an_error(self, log: Log) -> None:
        """A read before the start or beyond the end raises, and the text has the offset and both bounds."""
        fill(log, 5)
        log.trim(A0, 2)
        for offset in (-1, 0, 1, 6, 1 << 41):
            with pytest.raises(OffsetOutOfRange, match=rf"a\[0\]: offset {offset} is outside of 2 to 5"):
                log.read(A0, offset, MiB)

    def test_trimming_is_idempotent(self, log: Log) -> None:
        """K3: a trim to where the start is or was does nothing; one beyond the end is an error and does nothing."""
        fill(log, 5)
        for before in (3, 3, 1, 0):
            log.trim(A0, before)
        with pytest.raises(OffsetOutOfRange):
            log.trim(A0, 6)
        assert log.bounds(A0) == (3, 5)

    def test_a_trim_to_the_end_keeps_the_offsets(self, world: LogWorld, log: Log) -> None:
        """Statement 3: an emptied partition goes on where it was, with its time."""
        log.send(0, 0, A0, b"x")
        log.poll()
        log.trim(A0, 1)
        world.now_ms = 10
        again = world.open()
        again.send(0, 2, A0, b"y")
        assert again.poll() == [Delivery(0, 2, 1, world.time)]  # type: ignore[arg-type]  # equal to any time
        assert again.read(A0, 1, 1) == [(1, world.time, world.time, None, b"y", None)]

    def test_a_trim_leaves_the_other_partitions(self, log: Log) -> None:
        """The neighbours of a trimmed partition keep every message."""
        for partition in (A0, A1, OUT):
            log.send(0, 0, partition, b"x")
        log.poll()
        log.trim(A1, 1)
        assert (log.bounds(A0), log.bounds(A1), log.bounds(OUT)) == ((0, 1), (1, 1), (0, 1))

    def test_large_payloads_pass(self, log: Log) -> None:
        """A message of 1 MB and 8 MB of plain records go in one poll; a small read budget returns them one by one."""
        outputs = [record(bytes([number]) * 1_000_000) for number in range(8)]
        log.send(0, 0, A0, b"m" * MiB, sync=True)
        log.produce(0, 1, outputs)
        log.poll()
        assert log.read(A0, 0, 1)[0].value == b"m" * MiB
        assert values(log, OUT) == [output.value for output in outputs]

    def test_a_wait_ends(self, world: LogWorld, log: Log) -> None:
        """A wait returns when another connection has appended to what we read, and at the time-out when none has."""
        assert values(log, A0) == []
        log.wait(0)
        log.wait(1)
        other = world.open()
        other.send(0, 0, A0, b"x")
        other.poll()
        assert log.wait(600_000)
        assert values(log, A0) == [b"x"]

    def test_a_delivery_tells_where_plain_records_end(self, log: Log) -> None:
        """For each partition that they went to, the offset behind the last one, to find them again (D5)."""
        log.create_topic("wide", 2, plain=True)
        places = [TopicPartition("wide", number) for number in (0, 1, 0)]
        log.produce(0, 1, [ExternalRecord(place, None, b"x", 1) for place in places])
        (first,) = log.poll()
        assert dict(first.ends) == {places[0]: 2, places[1]: 1}
        log.produce(0, 2, [ExternalRecord(places[0], None, b"y", 1)])
        (second,) = log.poll()
        assert dict(second.ends) == {places[0]: 3}

    def test_what_is_processed_is_told_to_others(self, world: LogWorld, log: Log) -> None:
        """A reader's last report of a partition becomes known to others in the end; of other partitions nothing."""
        other = world.open()
        log.report_processed({A0: 3})
        log.poll()
        log.report_processed({A0: 2})
        looks = 0
        while (found := other.processed([A0, A1])) != {A0: 2}:
            assert looks < LOOKS_MAX, found
            looks += 1
            log.poll()
            log.wait(10)
        assert other.asked([A0, A1]) == 0

    def test_a_reader_asks_for_a_checkpoint(self, world: LogWorld, log: Log) -> None:
        """The highest that readers of some partitions have asked for last becomes known to others, sooner or later."""
        other = world.open()
        log.report_processed({A0: 3, A1: 1}, 1_700_000_000_200)
        log.poll()
        log.report_processed({A1: 2}, 1_700_000_000_100)
        looks = 0
        while (found := (other.asked([A1]), other.asked([A0, A1]))) != (1_700_000_000_100, 1_700_000_000_200):
            assert looks < LOOKS_MAX, found
            looks += 1
            log.poll()
            log.wait(10)
        assert other.processed([A0, A1]) == {A0: 3, A1: 2}

    def test_a_partition_that_was_left_is_read_on(self, log: Log) -> None:
        """Leaving it loses nothing: what came meanwhile is read by the next read, from any offset."""
        log.leave(A0)
        for token, value in enumerate((b"one", b"two", b"three")):
            log.send(0, token, A0, value)
        log.poll()
        assert [row.value for row in log.read(A0, 0, 1)] == [b"one"]
        log.leave(A0)
        log.send(0, 3, A0, b"four")
        log.poll()
        assert log.bounds(A0) == (0, 4)
        assert [row.value for row in log.read(A0, 1, MiB)] == [b"two", b"three", b"four"]
