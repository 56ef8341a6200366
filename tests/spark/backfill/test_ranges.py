"""The range of a backfill: files, log and the live job cover each offset exactly once."""

import re
from pathlib import Path

import pytest

from grete.core.graph.task_topology import TaskWiring, wire
from grete.errors import ConfigError
from grete.logs.embedded import EmbeddedLog
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.commit import Commit, ExternalInput
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.audit import check_whole
from grete.spark.backfill.backfill import BackfillSpec
from grete.spark.backfill.plans import LogTail
from grete.spark.backfill.ranges import BackfillEnd, Ends, InputRanges, check_placed, cover, parse_until
from grete.spark.backfill.sources import sources_of
from grete.spark.format.options import LogSpec
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import settled_fold
from grete.state.write.rescale import rescale
from tasks import word_count
from tests.state import pair_bulk_writes, pair_job
from tests.support import recommendations

PLACE = TopicPartition("sentences", 0)
WIRING = wire(word_count.job.topology(), 0, 0)
ANY = BackfillEnd(now=False, offsets={})
ARCHIVE: Ends = {"sentences": {0: 60}}
PLAIN: Ends = {"sentences": None}
LIVE: Ends = {}


def found(
    ends: Ends, until: BackfillEnd, *, log: tuple[int, int] = (0, 100), reached: int | None = None
) -> InputRanges:
    """Return the cover of the job's one task over a log of these bounds, of a job that has come to ``reached``."""
    data = MemoryLogData(lambda: 0)
    memory = MemoryLog(data)
    memory.create_topic("sentences", 1, plain=True)
    for _ in range(log[1]):
        data.append(PLACE, None, b"", 0, None)
    memory.trim(PLACE, log[0])
    return cover(memory, [(WIRING, None if reached is None else commit(WIRING, reached))], ends, until)


def commit(wiring: TaskWiring, offset: int) -> Commit:
    """Return a commit that is at an offset."""
    external = (ExternalInput(*PLACE, offset),)
    return Commit(wiring.producer, 1, 5, 0, (), (), 0, 0, 0, b"", 0, 0, 0, False, (), (), external)


@pytest.mark.parametrize(
    ("ends", "until", "log", "reached", "tail", "resume"),
    [
        (LIVE, ANY, (0, 100), None, LogTail(0, 100), 100),  # all that the log has
        (LIVE, ANY, (0, 100), 70, LogTail(0, 70), 70),  # a job that has run: to where it is
        (LIVE, BackfillEnd(now=True, offsets={}), (0, 100), 70, LogTail(0, 100), 100),
        (LIVE, BackfillEnd(now=False, offsets={PLACE: 80}), (0, 100), 70, LogTail(0, 80), 80),
        (PLAIN, ANY, (0, 100), None, None, 0),  # files without offsets come before the topic
        (PLAIN, ANY, (40, 100), None, None, 40),
        (PLAIN, ANY, (0, 100), 70, LogTail(0, 70), 70),
        (ARCHIVE, ANY, (0, 100), None, None, 60),  # an archive ends where it ends
        (ARCHIVE, ANY, (50, 100), 70, LogTail(60, 70), 70),
        (ARCHIVE, BackfillEnd(now=True, offsets={}), (60, 100), None, LogTail(60, 100), 100),
        (ARCHIVE, BackfillEnd(now=False, offsets={PLACE: 50}), (0, 100), None, None, 50),
    ],
)
def test_each_offset_is_in_one_place(
    ends: Ends, until: BackfillEnd, log: tuple[int, int], reached: int | None, tail: LogTail | None, resume: int
) -> None:
    """Files up to their end, the log from there on, the live job from where both end."""
    covered = found(ends, until, log=log, reached=reached)
    assert covered.resume == {PLACE: resume}
    assert covered.tails == ({} if tail is None else {(WIRING.producer, PLACE): tail})


@pytest.mark.parametrize(
    ("ends", "until", "log", "reached", "message"),
    [
        (
            LIVE,
            BackfillEnd(now=False, offsets={PLACE: 101}),
            (0, 100),
            None,
            "from offset 101, but the log has 0 to 100",
        ),
        (ARCHIVE, ANY, (61, 100), None, "from offset 60, but the log has 61 to 100"),
        (
            ARCHIVE,
            BackfillEnd(now=True, offsets={}),
            (61, 100),
            None,
            "files end at offset 60, and the log starts at 61",
        ),
        (ARCHIVE, ANY, (0, 50), None, "from offset 60, but the log has 0 to 50"),
        (LIVE, BackfillEnd(now=False, offsets={PLACE: 30}), (0, 100), 70, "committed up to offset 70, beyond 30"),
    ],
)
def test_a_gap_or_a_step_back_is_refused(
    ends: Ends, until: BackfillEnd, log: tuple[int, int], reached: int | None, message: str
) -> None:
    """Offsets that would be missing, or sent twice, are an error that names them."""
    with pytest.raises(ConfigError, match=message):
        found(ends, until, log=log, reached=reached)


@pytest.mark.parametrize(
    ("ends", "until", "resume"),
    [
        (LIVE, BackfillEnd(now=False, offsets={PLACE: 3}), 3),
        (ARCHIVE, ANY, 60),
        (LIVE, BackfillEnd(now=True, offsets={}), 0),
    ],
)
def test_an_open_transaction_is_named(ends: Ends, until: BackfillEnd, resume: int) -> None:
    """The end of the log lies in front of it: an offset behind is refused, and who goes on from the end is told."""
    data = MemoryLogData(lambda: 0)
    memory = MemoryLog(data)
    memory.create_topic("sentences", 1, plain=True)
    data.append(PLACE, None, b"", 0, None)
    data.begin_transaction(PLACE)
    data.append(PLACE, b"eve", b"", 0, None)
    data.append(PLACE, b"ann", b"", 0, None)
    named = r"sentences\[0\]: an open transaction begins at offset 1 with key 'eve' .*: 2 offsets .*abort --topic"
    if resume:
        with pytest.raises(ConfigError, match=rf"go on from offset {resume}, .*{named}"):
            cover(memory, [(WIRING, None)], ends, until)
        return
    found = cover(memory, [(WIRING, None)], ends, until)
    assert found.resume == {PLACE: 1}
    assert any(re.search(named, remark) for remark in found.remarks)


def test_what_is_not_sent_is_said() -> None:
    """Beyond where the job was its outputs of the history are not written: a remark says from where to where."""
    (remark,) = found(LIVE, BackfillEnd(now=True, offsets={}), reached=70).remarks
    assert "70 to 100 is not sent" in remark.replace("offset 70; what it would have sent from there", "70")


def test_offsets_and_sources_are_checked_by_name() -> None:
    """Every partition and every topic needs its word; what is no input is refused by name."""
    job = recommendations.job
    assert parse_until("now", job) == BackfillEnd(now=True, offsets={})
    assert parse_until("0=7", word_count.job).offsets == {PLACE: 7}
    for text, message in (("0=7", "write now, or"), ("locations:0=7", "says nothing of"), ("x:0=1", "is no input")):
        with pytest.raises(ConfigError, match=message):
            parse_until(text, job)
    assert sources_of(job, ["locations=a=b", "forecasts=kafka"]) == {"locations": "a=b", "forecasts": "kafka"}
    assert sources_of(word_count.job, ["a=b"]) == {"sentences": "a=b"}
    for texts, message in ((["here"], "write TOPIC=PATH"), (["locations=a"], "says nothing of forecasts")):
        with pytest.raises(ConfigError, match=message):
            sources_of(job, texts)


def test_the_log_of_before_a_rescale_is_refused(tmp_path: Path) -> None:
    """Its records stand in the partitions of then: recomputed from there, state would be in the wrong tasks."""
    lines = [(f"k{number}", "a") for number in range(25)]
    pair_bulk_writes.run("tests.state.pair_job", tmp_path / "job", *lines)
    log = EmbeddedLog(tmp_path / "job" / "log.db")
    rescaled = pair_job.job.of(3)
    rescale(log, pair_job.job, 3, Settings(), own_topics=True, assume_keyed=True)
    wirings = [(wiring, settled_fold(log, wiring).last) for wiring in all_wirings(rescaled)]
    archive: Ends = {"observed": dict.fromkeys(range(3), 1)}
    for ends in ({}, archive, {"observed": None}):
        covered = cover(log, wirings, ends, parse_until(None, rescaled))
        with pytest.raises(ConfigError, match=r"observed\[\d\]: up to offset \d+ records are in the partitions of"):
            check_placed(log, rescaled, covered, ends)
    covered = cover(log, wirings, {}, parse_until(None, rescaled))
    for partition in covered.resume:
        log.trim(partition, log.bounds(partition)[1])
    check_placed(log, rescaled, cover(log, wirings, {}, parse_until(None, rescaled)), {})
    check_placed(log, pair_job.job, covered, {})  # of another count: a rescale that did not happen
    log.close()


def test_an_audit_of_a_log_without_its_beginning_is_refused() -> None:
    """A trimmed beginning cannot be recomputed: the error names the offset, and asks for the archive."""
    data = MemoryLogData(lambda: 0)
    memory = MemoryLog(data)
    memory.create_topic("sentences", 1, plain=True)
    for _ in range(9):
        data.append(PLACE, None, b"", 0, None)
    wanted = BackfillSpec(word_count.job, "", LogSpec("embedded", "", ""), Settings(), {"sentences": "kafka"}, "")
    check_whole(memory, wanted, {(WIRING.producer, PLACE): 0})
    memory.trim(PLACE, 4)
    with pytest.raises(ConfigError, match=r"sentences\[0\] starts at offset 4: .* --from sentences=PATH"):
        check_whole(memory, wanted, {(WIRING.producer, PLACE): 0})
    check_whole(memory, wanted._replace(sources={"sentences": "archive"}), {(WIRING.producer, PLACE): 0})
    check_whole(memory, wanted, {(WIRING.producer, PLACE): 4})  # the job has begun there
