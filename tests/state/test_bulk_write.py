"""A bulk write counts as a whole or not at all: with repeats, others at work, and killed at every step (1.8, 2.5)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from grete.errors import ConfigError, Fenced, Halted
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import Log
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    decode_changelog_header,
    encode_changelog_header,
    encode_claim,
)
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.checkpoints import snapshots as reading
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import commits, contents, fold_to_end, live, settled_fold, snapshots
from grete.state.write.bulk.bulk_write import abort, begin, check_used_up, commit, settle
from grete.state.write.bulk.bulk_write_attempt import Attempt, AttemptData, BulkWrite
from grete.state.write.bulk.task_claim import claim
from tests.state.faulty_logs import BreakingLog, ClaimedBeforeTheOutcome, RepeatingLog, UnfencedLog
from tests.state.killed_bulk_writes import rewrite
from tests.state.pair_job import job

STORE = 10  # the one of each stage
SETTINGS = Settings()

State = dict[str, dict[bytes, bytes]]  # task → key → value


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with the job's topics."""
    opened = EmbeddedLog(JobDirectory(tmp_path / "job").directory / "log.db")
    create_topics(job, opened)
    yield opened
    opened.close()


def write(
    log: Log,
    bulk_write: BulkWrite,
    task: int,
    cells: dict[bytes, bytes],
    *,
    number: int = 1,
    reset: tuple[int, ...] = (STORE,),
) -> AttemptData:
    """Write entries of one task as one attempt."""
    attempt = Attempt(log, bulk_write, task, number, reset)
    attempt.add([STORE] * len(cells), list(cells), list(cells.values()))
    return attempt.close()


def state(log: Log, checkpoint_id: int | None = None) -> State:
    """Return the committed state."""
    found = {}
    for snapshot in snapshots(log, job, checkpoint_id):
        keys, values, _ = live(contents(reading.segments(log, snapshot), frozenset({STORE}))[STORE])
        found[snapshot.task] = dict(zip(keys, values, strict=True))
    return found


def everywhere(cells: dict[bytes, bytes]) -> State:
    """Return a state that is the same in each task."""
    return {wiring.name: cells for wiring in all_wirings(job)}


def whole(log: Log, cells: dict[bytes, bytes]) -> BulkWrite:
    """Give each task this state and no other."""
    bulk_write = begin(log, job, SETTINGS)
    commit(log, bulk_write, [write(log, bulk_write, task, cells) for task in range(4)], settings=SETTINGS, full=True)
    return bulk_write


def test_a_bulk_write_gives_all_tasks_one_checkpoint(log: Log) -> None:
    """A rewritten store is replaced, an added entry is added; each checkpoint stays readable (1.8)."""
    first = whole(log, {b"a": b"1", b"b": b"2"})
    assert state(log) == everywhere({b"a": b"1", b"b": b"2"})
    second = begin(log, job, SETTINGS)
    commit(log, second, [write(log, second, 3, {b"b": b"3"}, reset=())], settings=SETTINGS, full=False)
    assert state(log) == everywhere({b"a": b"1", b"b": b"2"}) | {"count-1": {b"a": b"1", b"b": b"3"}}
    third = whole(log, {b"c": b"4"})
    assert state(log) == everywhere({b"c": b"4"})
    assert state(log, first.checkpoint_id) == everywhere({b"a": b"1", b"b": b"2"})
    assert first.checkpoint_id < second.checkpoint_id < third.checkpoint_id
    for wiring in all_wirings(job):
        assert [at.commit.checkpoint_id for at in commits(log, wiring)] == [
            first.checkpoint_id,
            second.checkpoint_id,
            third.checkpoint_id,
        ]
        last = last_commit(log, wiring.changelog)
        assert last is not None
        assert last.commit.checkpoint_id == third.checkpoint_id
        assert settled_fold(log, wiring).complete


def test_only_the_attempt_that_is_named_counts(log: Log) -> None:
    """Two attempts of a task write at once, as after a retry or by speculation, one goes on when all is over (2.5)."""
    bulk_write = begin(log, job, SETTINGS)
    slow, quick = (Attempt(log, bulk_write, 2, number, (STORE,)) for number in (7, 8))
    for attempt, value in ((slow, b"slow"), (quick, b"quick"), (slow, b"slow"), (quick, b"quick")):
        attempt.add([STORE], [b"key" + value], [value])
        attempt._flush()
    written = [write(log, bulk_write, task, {b"x": b"x"}) for task in (0, 1, 3)] + [quick.close()]
    commit(log, bulk_write, written, settings=SETTINGS, full=True)
    slow.add([STORE], [b"late"], [b"late"])
    slow.close()
    assert state(log)["count-0"] == {b"keyquick": b"quick"}


def test_a_commit_that_the_log_repeats_counts_once(log: Log) -> None:
    """As-of reads, a look back and the fold agree if a bulk write's commit comes twice before its outcome (C2)."""
    bulk_write = begin(log, job, SETTINGS)
    repeating: Any = RepeatingLog(log)
    commit(
        repeating,
        bulk_write,
        [write(log, bulk_write, task, {b"a": b"1"}) for task in range(4)],
        settings=SETTINGS,
        full=True,
    )
    assert state(log) == state(log, bulk_write.checkpoint_id) == everywhere({b"a": b"1"})
    for wiring in all_wirings(job):
        assert [at.commit.checkpoint_id for at in commits(log, wiring)] == [bulk_write.checkpoint_id]
        last = last_commit(log, wiring.changelog)
        assert last is not None
        assert (last.offset, last.commit) == (settled_fold(log, wiring).last_offset, settled_fold(log, wiring).last)


def test_two_attempts_of_one_task_are_not_both_committed(log: Log) -> None:
    """Rows of one partition from two Spark tasks: a commit names one attempt, so it is refused, and nothing counts."""
    bulk_write = begin(log, job, SETTINGS)
    both = [write(log, bulk_write, 1, {b"a": b"1"}, number=number) for number in (1, 2)]
    with pytest.raises(ConfigError, match=r"two attempts, 1 and 2, have written task split-1"):
        commit(log, bulk_write, both, settings=SETTINGS, full=True)
    abort(log, bulk_write)
    assert all(settled_fold(log, wiring).last is None for wiring in all_wirings(job))


@pytest.mark.parametrize("taken", range(4))
def test_a_task_that_is_claimed_meanwhile_makes_the_bulk_write_invalid(log: Log, taken: int) -> None:
    """After a later claim of any task nothing of the bulk write counts, or stays in doubt at an abort (C2, C3, 1.8)."""
    before = whole(log, {b"a": b"1"})
    bulk_write = begin(log, job, SETTINGS)
    written = [write(log, bulk_write, task, {b"b": b"2"}) for task in range(4)]
    claim(log, all_wirings(job)[taken])
    with pytest.raises(Fenced, match="stop the job's workers"):
        commit(log, bulk_write, written, settings=SETTINGS, full=True)
    abort(log, bulk_write)
    assert state(log) == everywhere({b"a": b"1"})
    assert all(
        (at := settled_fold(log, w).last) is not None and at.checkpoint_id == before.checkpoint_id
        for w in all_wirings(job)
    )


@pytest.mark.parametrize("taken", range(4))
def test_without_a_fence_a_claim_before_the_commit_is_found_by_reading(tmp_path: Path, taken: int) -> None:
    """The log takes the commit behind the claim of another process: the bulk write reads that it does not count."""
    log = UnfencedLog(JobDirectory(tmp_path / "job").directory / "log.db")
    create_topics(job, log)
    whole(log, {b"a": b"1"})
    bulk_write = begin(log, job, SETTINGS)
    written = [write(log, bulk_write, task, {b"b": b"2"}) for task in range(4)]
    claim(log, all_wirings(job)[taken])
    with pytest.raises(Fenced, match=r"generation \d+ claimed at offset"):
        commit(log, bulk_write, written, settings=SETTINGS, full=True)
    abort(log, bulk_write)
    assert state(log) == everywhere({b"a": b"1"})
    log.close()


def test_without_a_fence_a_claim_before_the_outcome_is_found_by_reading(tmp_path: Path) -> None:
    """Every commit is valid, but the claim has rolled the bulk write back: the outcome behind it must not count."""
    log = ClaimedBeforeTheOutcome(JobDirectory(tmp_path / "job").directory / "log.db")
    create_topics(job, log)
    whole(log, {b"a": b"1"})
    bulk_write = begin(log, job, SETTINGS)
    written = [write(log, bulk_write, task, {b"b": b"2"}) for task in range(4)]
    log.wiring = all_wirings(job)[0]
    with pytest.raises(Fenced, match=r"generation \d+ claimed at offset"):
        commit(log, bulk_write, written, settings=SETTINGS, full=True)
    abort(log, bulk_write)
    assert state(log) == everywhere({b"a": b"1"})
    log.close()


def test_an_attempt_is_refused_once_the_task_is_claimed(log: Log) -> None:
    """An executor that wakes up late learns from the log that its bulk write is over (C3)."""
    bulk_write = begin(log, job, SETTINGS)
    begin(log, job, SETTINGS)
    with pytest.raises(Fenced, match="split-0: the log refuses its messages"):
        write(log, bulk_write, 0, {b"a": b"1"})


def test_aborting_leaves_an_invalid_tail(log: Log) -> None:
    """Data without a commit belongs to no task: the next start reads on as if it were not there (R1)."""
    whole(log, {b"a": b"1"})
    bulk_write = begin(log, job, SETTINGS)
    write(log, bulk_write, 0, {b"b": b"2"})
    ends = [log.bounds(wiring.changelog)[1] for wiring in all_wirings(job)]
    abort(log, bulk_write)
    assert ends == [log.bounds(wiring.changelog)[1] for wiring in all_wirings(job)]
    assert state(log) == everywhere({b"a": b"1"})


@pytest.mark.timeout(600)
def test_a_bulk_write_that_is_killed_at_any_step_counts_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """A real SIGKILL before each durable append; then it is settled, or done again: readers see one of two states."""
    template, copies = tmp_path / "template", tmp_path / "copies"
    template.mkdir()
    copies.mkdir()
    log = EmbeddedLog(template / "log.db")
    create_topics(job, log)
    log.close()
    rewrite(template, -1, 1)
    script = [sys.executable, "-m", "tests.state.killed_bulk_writes", str(template), str(copies)]
    done = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    assert [line.split()[1] for line in done] == ["killed"] * 12 + ["0"]  # 4 claims, 4 commits, an outcome, 3 copies
    old, new = (everywhere({b"key": value.to_bytes(8, "big")}) for value in (1, 2))
    seen = []
    for number in range(1, 14):
        log = EmbeddedLog(copies / str(number) / "log.db")
        in_doubt = 6 <= number <= 9  # one commit at least, and no outcome
        assert (fold_to_end(log, all_wirings(job)[0]).in_doubt is not None) == in_doubt
        assert state(log) == (new if number > 9 else old)
        if number == 9:  # all tasks are committed: it may count
            assert settle(log, job, counts=True) is not None
            assert state(log) == new
        elif in_doubt:
            with pytest.raises(ConfigError, match="has not committed"):
                settle(log, job, counts=True)
        settled = settle(log, job, counts=False)
        seen.append(settled is not None and settled[1])
        assert settle(log, job, counts=False) is None
        whole(log, {b"key": b"again"})
        assert state(log) == everywhere({b"key": b"again"})
        log.close()
    assert seen == [False] * 9 + [True] * 3 + [False]  # what counts already is only told to the others


def test_doing_it_again_makes_invalid_what_was_left_in_doubt(tmp_path: Path) -> None:
    """The next bulk write need not be told of a dead one: its process can no longer decide it (C2, 1.8)."""
    directory = JobDirectory(tmp_path / "job").directory
    log = EmbeddedLog(directory / "log.db")
    create_topics(job, log)
    bulk_write = begin(log, job, SETTINGS)
    with pytest.raises(RuntimeError):
        commit(BreakingLog(log, 3), bulk_write, [], settings=SETTINGS, full=True)  # type: ignore[arg-type]  # acts as a log
    assert fold_to_end(log, all_wirings(job)[0]).in_doubt == bulk_write.bulk_write_id
    again = whole(log, {b"a": b"1"})
    assert state(log) == everywhere({b"a": b"1"})
    for wiring in all_wirings(job):
        assert [at.commit.bulk_write_id for at in commits(log, wiring)] == [again.bulk_write_id]
    log.close()


def test_what_is_not_used_up_is_not_rewritten(log: Log) -> None:
    """It is at the ends of all streams: records that a producer has committed must not be passed over (A4)."""
    bulk_write = begin(log, job, SETTINGS)
    base = bulk_write.tasks[0]
    partition = TopicPartition(job.topology().streams[0].topic, 0)
    assert partition in base.wiring.outputs
    commit(log, bulk_write, [], settings=SETTINGS, full=True)
    last = settled_fold(log, base.wiring).last
    assert last is not None
    sent = tuple(replace(o, next_seq=o.next_seq + 5) for o in last.outputs)
    tasks = [(w, settled_fold(log, w).last) for w in all_wirings(job)]
    tasks[0] = (tasks[0][0], replace(last, outputs=sent))
    with pytest.raises(ConfigError, match=r"count-0 has committed 0 records of .*, its producer 5: stop the job"):
        check_used_up(tasks)


def test_messages_of_a_bulk_write_are_valid_for_every_reader(log: Log) -> None:
    """No message of a changelog is of a generation below one that is before it, when one bulk write follows another."""
    whole(log, {b"a": b"1"})
    whole(log, {b"a": b"2"})
    for wiring in all_wirings(job):
        generations = [
            decode_changelog_header(row.value or b"").generation for row in log.read(wiring.changelog, 0, 1 << 20)
        ]
        assert generations == sorted(generations)


# --- reading what is odd ----------------------------------------------------------------------------------------------


def test_a_trimmed_head_takes_old_checkpoints_with_it(log: Log) -> None:
    """A trimmed checkpoint is refused by name, not guessed; whole ones behind it stay readable (K2, R1)."""
    first, second = whole(log, {b"a": b"1"}), whole(log, {b"a": b"2"})
    for task in second.tasks:
        log.trim(task.changelog, task.begin - 1)
    assert state(log) == everywhere({b"a": b"2"})
    with pytest.raises(ConfigError, match=r"was not committed by .*: it began later, or it is not retained"):
        state(log, first.checkpoint_id)


def test_two_claims_of_one_generation_are_told_apart(log: Log) -> None:
    """The second claimant in the log claims again; from then on the first one's messages are invalid (C1, C2)."""
    wiring = all_wirings(job)[0]
    one, two = claim(log, wiring), claim(log, wiring)
    same = ChangelogHeader(ChangelogType.CLAIM, two.generation, 0, 0)
    log.send(0, 1, wiring.changelog, encode_claim(same, Claim(bytes(16), "late", 1, 1)))
    log.poll()
    three = claim(log, wiring)
    assert (one.generation, two.generation, three.generation) == (1, 2, 3)
    bulk_write = whole(log, {b"a": b"1"})
    assert bulk_write.tasks[0].generation == 4
    assert state(log) == everywhere({b"a": b"1"})


def test_a_commit_of_a_newer_build_is_not_guessed(log: Log) -> None:
    """A schema version that this build does not know: the error names it, and says what to do."""
    bulk_write = whole(log, {b"a": b"1"})
    task = bulk_write.tasks[1]
    header = ChangelogHeader(ChangelogType.COMMIT, task.generation, task.next_seq + 2, 0)
    log.send(0, 1, task.changelog, encode_changelog_header(header) + (9).to_bytes(2, "big"))
    log.poll()
    with pytest.raises(Halted, match=r"schema version 9, this build reads 1 and 2: upgrade before reading"):
        state(log)
    with pytest.raises(Halted, match=r"split\.changelog\[1\], offset \d+: .*schema version 9"):
        settled_fold(log, all_wirings(job)[1])


def test_a_job_with_more_partitions_than_its_topics_is_refused(log: Log) -> None:
    """Read with other code than it ran with: the error says what to write."""
    whole(log, {b"a": b"1"})
    with pytest.raises(ConfigError, match=r"pair\.split\.changelog has 2: write Job\(…, partitions=2\)"):
        snapshots(log, job.of(3))


def test_state_is_not_read_with_fewer_partitions_than_it_has(log: Log) -> None:
    """It would be a part of it: the error says how many there are."""
    whole(log, {b"a": b"1"})
    with pytest.raises(ConfigError, match=r"other stages or another number of partitions \(its changelog has 2\)"):
        snapshots(log, job.of(1))
