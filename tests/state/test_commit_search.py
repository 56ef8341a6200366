"""Commits are found by a few reads of a changelog's end or middle: valid ones, and none that was rolled back (C2)."""

import pytest
from hypothesis import HealthCheck, example, given, settings

from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Outcome, encode_outcome
from grete.protocol.commit import decode_commit
from grete.state.read.checkpoints import commits
from grete.state.read.checkpoints.commit_search import first_from, last_at_most
from grete.state.read.checkpoints.commits import all_wirings, newest_commit
from tasks.inverted_index import job
from tests.core.test_fold_from_commits import EVENTS, Changelog, by_definition, written

WIRING = all_wirings(job)[-1]
SLEEPER = [("claim", 0, 2), ("commit", 0, 0), ("claim", 0, 2), ("commit", 0, 0), ("commit", 0, 0)]
LATE = [*SLEEPER, ("data", 1, 0), ("commit", 1, 2)]  # by a process that slept through the claim of its successor
LATE_AND_ON = [*LATE, ("commit", 0, 0), ("commit", 0, 0), ("commit", 0, 0)]


def logged(changelog: Changelog) -> MemoryLog:
    """Return a log with the changelog of one task, and the outcomes of its bulk writes in that of task (0, 0)."""
    data = MemoryLogData(lambda: 0)
    log = MemoryLog(data)
    for partition in (WIRING.changelog, WIRING.outcome_changelog):
        log.create_topic(partition.topic, partition.partition + 1)
    for message in changelog.messages:
        data.append(WIRING.changelog, None, message, None, None)
    for seq, (bulk_write_id, counts) in enumerate(changelog.outcomes.items()):
        outcome = encode_outcome(ChangelogHeader(ChangelogType.OUTCOME, 1, seq, 0), Outcome(bulk_write_id, counts))
        data.append(WIRING.outcome_changelog, None, outcome, None, None)
    return log


def offset(found: commits.CommittedAt | None) -> int | None:
    """Return the offset of a commit."""
    return None if found is None else found.offset


@pytest.mark.parametrize("window", [1, 8])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVENTS)
@example(LATE)
@example(LATE_AND_ON)
def test_only_commits_that_count_are_found(
    monkeypatch: pytest.MonkeyPatch, window: int, events: list[tuple[str, int, int]]
) -> None:
    """The last one, the last up to each checkpoint and the first from each on: those that the definition names."""
    monkeypatch.setattr(commits, "_WINDOW", window)
    changelog = written([event for event in events if event[0] != "repeat"])  # Kafka and SQLite repeat nothing
    log = logged(changelog)
    valid = {at: decode_commit(changelog.messages[at]).checkpoint_id for at in by_definition(changelog)}
    assert offset(newest_commit(log, WIRING)) == max(valid, default=None)
    assert offset(last_at_most(log, WIRING, None)) == max(valid, default=None)
    for checkpoint_id in range(max(valid.values(), default=0) + 2):
        up_to = [at for at, found in valid.items() if found <= checkpoint_id]
        assert offset(last_at_most(log, WIRING, checkpoint_id)) == max(up_to, default=None)
        from_on = [at for at, found in valid.items() if found >= checkpoint_id]
        assert offset(first_from(log, WIRING, checkpoint_id)) == min(from_on, default=None)


def test_a_commit_of_a_process_that_was_replaced_is_not_the_last_one() -> None:
    """It is behind the last valid one, and the claim that replaced its process is far before it."""
    changelog = written([*SLEEPER, *[("data", 1, 0)] * 30, ("commit", 1, 2)])
    *_, last = by_definition(changelog)
    assert last < len(changelog.messages) - 8 - 1
    assert offset(newest_commit(logged(changelog), WIRING)) == last
