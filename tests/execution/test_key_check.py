"""Keys in the wrong partition: what is pinned, which records are compared, when a task halts and what it says."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core.graph.partitioners import Partitioner
from grete.errors import ConfigError, Halted
from grete.job.directory import JobDirectory
from grete.job.key_check import SAMPLE_STEP, JobKeys, KeyCheck
from grete.job.key_metadata import pin, pinned, placed_by
from grete.job.metadata import pin_rescale
from grete.logs.address import LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import crc32_partition_of, partition_of
from grete.settings import Settings
from tests.state.pair_bulk_writes import run

MURMUR2, CRC32, OWN = Partitioner
ORDERS, USERS = Topic("orders", key=utf8, value=int64), Topic("users", key=utf8, value=int64)
PARTITIONS, HERE = 4, TopicPartition("orders", 1)
KEYS = [b"customer %d" % number for number in range(20_000)]
BY_MURMUR2 = [key for key in KEYS if partition_of(key, PARTITIONS) == 1]
BY_CRC32 = [key for key in KEYS if crc32_partition_of(key, PARTITIONS) == 1]
WRONG = next(key for key in BY_CRC32 if partition_of(key, PARTITIONS) != 1)


class Forward(Task):
    """Keeps nothing."""

    orders = Input(ORDERS)
    out = Output(Topic("on", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        """Do nothing."""


class Add(Task):
    """Two inputs, and state by their key."""

    orders = Input(ORDERS)
    users = Input(USERS)
    sums = Store("sums", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        """Do nothing."""


class Behind(Task):
    """Reads what another stage sends, and a topic from outside."""

    sent = Input(Forward.out.target)  # type: ignore[arg-type]  # a target is a topic here
    users = Input(USERS)
    sums = Store("sums", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        """Do nothing."""


class World:
    """The metadata of a job, and workers that come and go."""

    def __init__(self, directory: Path) -> None:
        self.job = Job("adding", stages=[Add], partitions=PARTITIONS)
        self.job_directory = JobDirectory(directory)
        self.log = EmbeddedLog(directory / "log.db")

    def keys(self, job: Job | None = None, settings: Settings | None = None) -> JobKeys:
        """Return the keys of the job as a worker that starts now knows them."""
        return JobKeys(job or self.job, self.log, self.job_directory, settings or Settings())

    def check(self, settings: Settings | None = None) -> KeyCheck:
        """Return the check of a worker's task that starts now."""
        found = self.keys(settings=settings).check_of(self.job.stages[0], HERE.partition)
        assert found is not None
        return found

    def pinned(self) -> dict[str, Partitioner]:
        """Return the pinned partitioners."""
        return pinned(self.log, ["orders", "users"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return a job that has not run."""
    made = World(tmp_path)
    yield made
    made.log.close()


def read(check: KeyCheck, *keys: bytes | None, at: int = 0, batch: int = 500, partition: TopicPartition = HERE) -> int:
    """Let batches of these keys be checked; return how many records that were."""
    for first in range(0, len(keys), batch):
        some = keys[first : first + batch]
        check(partition, range(at + first, at + first + len(some)), some)
    return at + len(keys)


def test_the_first_keys_pin_the_partitioner(world: World) -> None:
    """By name, for every worker to come; null and empty keys tell nothing."""
    check = world.check()
    read(check, None, b"", *[BY_MURMUR2[0]] * 100)
    assert world.pinned() == {}
    read(check, *BY_MURMUR2[:20], at=102)
    assert world.pinned() == {"orders": MURMUR2}
    assert world.log.meta_get("partitioner orders") == b'{"format": 1, "partitioner": "murmur2"}'


def test_a_later_key_that_contradicts_halts(world: World) -> None:
    """With key, place, whose it may be, and what to set there; the same after a restart."""
    check = world.check()
    read(check, *BY_MURMUR2[:100])
    for each in (check, world.check()):
        with pytest.raises(Halted) as halted:
            read(each, WRONG, at=100)
        right = partition_of(WRONG, PARTITIONS)
        text = str(halted.value)
        assert text.startswith(
            f"GRETE-H030: orders[1] offset 100: key {WRONG!r} belongs in partition {right}: topic orders is"
        )
        assert "A producer that partitions by CRC32 (the default of librdkafka, so of confluent-kafka)" in text
        assert "set partitioner=murmur2_random in producers of librdkafka" in text
        assert "misplaced_keys = warn" in text


def test_an_input_by_crc32_is_as_good(world: World) -> None:
    """The default of Python's client; then a Java producer with its default is the one that is wrong."""
    check = world.check()
    read(check, *BY_CRC32)
    assert world.pinned() == {"orders": CRC32}
    wrong = next(key for key in BY_MURMUR2 if crc32_partition_of(key, PARTITIONS) != 1)
    with pytest.raises(Halted, match="set partitioner=consistent_random in producers of librdkafka"):
        read(check, wrong)


def test_batches_of_few_records_are_compared_key_by_key(world: World) -> None:
    """An input that brings few at a time has no record that slips through."""
    check = world.check()
    read(check, *BY_MURMUR2[:100])
    for batch in range(1, 8):
        for position in range(batch):
            keys = [*BY_MURMUR2[:position], WRONG, *BY_MURMUR2[position : batch - 1]]
            with pytest.raises(Halted):
                read(check, *keys, batch=batch)


@pytest.mark.parametrize("period", [2, 16, 32, 64])
def test_a_producer_that_writes_now_and_then_is_noticed_soon(world: World, period: int) -> None:
    """Of large batches one key in SAMPLE_STEP is compared, beginning elsewhere each time: a regular place is met."""
    check = world.check()
    keys = [WRONG if at % period == 0 else BY_MURMUR2[at % 500] for at in range(600)]
    read(check, *BY_MURMUR2[:100])
    with pytest.raises(Halted):
        read(check, *keys * SAMPLE_STEP, batch=600)


def test_one_record_in_a_large_batch_may_slip_through(world: World) -> None:
    """As the page says: what is compared is a sample."""
    check = world.check()
    read(check, *BY_MURMUR2[:100])
    keys = [*BY_MURMUR2[:300], WRONG, *BY_MURMUR2[300:600]]
    slipped = 0
    for _ in range(SAMPLE_STEP):
        try:
            read(check, *keys, batch=601)
        except Halted:
            continue
        slipped += 1
    assert slipped == SAMPLE_STEP - 1


def test_a_partitioner_of_its_own_is_allowed_and_not_rescaled(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Said once, in the log; a rescale refuses, for it must know where a key belongs."""
    check = world.check()
    own = [key for key in KEYS if sum(key) % PARTITIONS == 1]
    read(check, *own)
    read(world.check(), *own, *BY_CRC32)
    assert world.pinned() == {"orders": OWN}
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the keys of an input are placed by neither murmur2 nor CRC32"
    ]
    with pytest.raises(ConfigError, match="only their producer knows to which partition a key goes"):
        placed_by(world.log, world.job)


def test_two_producers_from_the_start_halt(world: World) -> None:
    """Keys of both kinds and none that is neither: nothing is pinned."""
    with pytest.raises(Halted, match="of its keys some are placed by murmur2 and some by CRC32"):
        read(world.check(), *(key for pair in zip(BY_MURMUR2, BY_CRC32, strict=False) for key in pair))
    assert world.pinned() == {}


def test_inputs_of_one_stage_that_differ_halt(world: World) -> None:
    """At the record that shows it, and at each start from then on; a stage's own topic is placed by murmur2."""
    check = world.check()
    read(check, *BY_MURMUR2[:100])
    with pytest.raises(Halted) as halted:
        read(check, *BY_CRC32[:100], partition=TopicPartition("users", 1))
    assert "stage add: its inputs are partitioned differently: orders by murmur2, users by CRC32" in str(halted.value)
    assert "For users set partitioner=murmur2_random" in str(halted.value)
    with pytest.raises(Halted, match="its inputs are partitioned differently"):
        world.check()
    two = Job("adding", stages=[Forward, Behind], partitions=PARTITIONS)
    with pytest.raises(Halted, match="stage behind: its inputs are partitioned differently: on by murmur2, users by"):
        world.keys(two).check_of(two.stages[1], 1)


def test_what_keeps_nothing_by_key_is_not_checked(world: World) -> None:
    """A stage without state, which may bring keys where they belong; a job of one partition; internal inputs only."""
    two = Job("adding", stages=[Forward, Behind], partitions=PARTITIONS)
    assert world.keys(two).check_of(two.stages[0], 1) is None
    one = Job("adding", stages=[Add])
    assert world.keys(one).check_of(one.stages[0], 0) is None


def test_the_setting_lets_a_job_go_on(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """misplaced_keys = warn: said once for each input, then nothing is compared."""
    pin(world.log, "users", CRC32)
    check = world.check(Settings(misplaced_keys="warn"))
    read(check, *BY_MURMUR2[:100], *[WRONG] * 2_000)
    texts = [record.__dict__["error"] for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.split(":")[0] for text in texts] == ["stage add", "orders[1] offset 100"]


def test_what_another_process_has_pinned_counts(world: World) -> None:
    """Two processes that find different things: the second one halts at its own key."""
    check = world.check()
    pin(world.log, "orders", CRC32)
    with pytest.raises(Halted, match="topic orders is partitioned by CRC32"):
        read(check, *BY_MURMUR2)
    assert world.pinned() == {"orders": CRC32}


def test_a_pin_that_cannot_be_written_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The worker knows the partitioner nevertheless; the next start works it out again."""
    nowhere = LogAddress("kafka://127.0.0.1:1", world.job_directory.directory / "no-such-options")
    job_directory = JobDirectory(world.job_directory.directory, address=nowhere)
    check = JobKeys(world.job, world.log, job_directory, Settings()).check_of(world.job.stages[0], HERE.partition)
    assert check is not None
    read(check, *BY_MURMUR2[:100])
    assert world.pinned() == {}
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "cannot be pinned: the next start works it out again" in warning.message
    assert "no-such-options" in warning.__dict__["error"]
    with pytest.raises(Halted, match="topic orders is partitioned by murmur2"):
        read(check, WRONG)


def test_after_a_rescale_each_key_is_compared(world: World) -> None:
    """From the noted ends on; the producer that goes on with the old number of partitions is named."""
    pin_rescale(world.log, world.job, 3, {HERE: 1_000})
    old = [key for key in KEYS if partition_of(key, 3) == 1 and partition_of(key, PARTITIONS) != 1]
    check = world.check()
    read(check, *old[:100], at=900)
    keys = [*BY_MURMUR2[:700], old[0], *BY_MURMUR2[700:1_000]]
    with pytest.raises(Halted) as halted:
        read(check, *old[:10], *keys, at=990, batch=2_000)
    assert str(halted.value).startswith(f"GRETE-H030: orders[1] offset 1,700: key {old[0]!r} belongs in partition")
    assert "as many as there were before the rescale to 4: a producer with old metadata writes there" in str(
        halted.value
    )
    assert "topic.metadata.refresh.interval.ms" in str(halted.value)


def test_a_key_that_is_known_is_not_compared_again(world: World) -> None:
    """Nor is a known key forgotten while others come: memory is bounded."""
    pin_rescale(world.log, world.job, 3, {})
    check = world.check()
    for _ in range(5):
        read(check, *BY_MURMUR2, None, b"")
    with pytest.raises(Halted):
        read(check, *BY_MURMUR2, WRONG)


WIDE = Topic("orders", key=utf8, value=int64, partitions=3 * PARTITIONS)


def test_keys_of_another_task_halt_where_a_task_reads_several_partitions(world: World) -> None:
    """A key may be in any of them: its state is in one task all the same (A2f). The error has the topic's numbers."""
    stage = type("Add", (Add,), {"orders": Input(WIDE)})
    job = Job("adding", stages=[stage], partitions=PARTITIONS)
    check = world.keys(job).check_of(job.stages[0], 1)
    assert check is not None
    for number in (1, 5, 9):
        read(check, *BY_MURMUR2[:100], partition=TopicPartition("orders", number))
        with pytest.raises(Halted) as halted:
            read(check, *[WRONG] * SAMPLE_STEP, partition=TopicPartition("orders", number))
        right = partition_of(WRONG, 3 * PARTITIONS)
        assert f"orders[{number}] offset 0: key {WRONG!r} belongs in partition {right}: " in str(halted.value)
    assert world.pinned() == {"orders": MURMUR2}


DETERMINISTIC = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8
class Count(Task):
    observed = Input(Topic("observed", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
job = Job("counting", stages=[Count], partitions=2, mode=MODE)
"""


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_workers_halt_in_both_modes(tmp_path: Path, mode: str) -> None:
    """Real workers, our own producer's keys, then one elsewhere: exit code 4 with the words; again at each start."""
    (tmp_path / "counting.py").write_text(DETERMINISTIC.replace("MODE", repr(mode)))
    reference, job_directory = str(tmp_path / "counting.py"), JobDirectory(tmp_path / "job")
    lines = [(key.decode(), "x") for key in KEYS[:80]]
    assert run(reference, job_directory.directory, *lines) == {key: 1 for key, _ in lines}
    log = EmbeddedLog(job_directory.directory / "log.db")
    assert pinned(log, ["observed"]) == {"observed": MURMUR2}
    wrong = next(key for key in KEYS if partition_of(key, 2) != 1)
    log.produce_with_meta([ExternalRecord(TopicPartition("observed", 1), wrong, b"x", 1)], {})
    for _ in range(2):
        with pytest.raises(Halted, match=r"worker 1 halted: .*observed\[1\] offset"):
            run(reference, job_directory.directory)
    log.close()
