"""Results of calls are in the log before anything that depends on them leaves the task (D8)."""

from grete.core import actions as do
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.notes import CallResult, CallsNote, decode_note
from tests.core.deterministic.scenario import Logical, inner
from tests.core.streams import A0, IN, SOURCE, Log


def note(*numbers: int) -> CallsNote:
    """Return the note of the calls of some records, with their results."""
    return CallsNote(tuple((number, (CallResult(ok=True, data=b"%d" % number),)) for number in numbers))


def kinds(task: Logical) -> list[ChangelogType]:
    """Return the kinds of messages in the changelog of a task."""
    return [decode_changelog_header(value).type for _, value in task.log.rows[task.task.changelog]]


def known(task: Logical) -> dict[int, tuple[CallResult, ...]]:
    """Return the results that a successor would know."""
    fold = ChangelogFold(task.task.changelog, 0)
    for offset, (_, value) in enumerate(task.log.rows[task.task.changelog]):
        fold.feed(offset, value)
    return fold.since.calls


def test_a_source_logs_its_decision_then_the_results_then_sends() -> None:
    """Results of rows that were not decided on would be taken for those of others."""
    task = Logical(Log(), SOURCE).start()
    task.calls, task.hold = [note(1), note(2)], {do.AppendChangelog}
    task.take("x", "y")
    assert task.frames(SOURCE.outputs[0]) == []
    begin = len(task.done)
    task.release()
    assert [seq for seq, _ in task.frames(SOURCE.outputs[0])] == [1]
    assert kinds(task)[-3:] == [ChangelogType.INPUT_DECISION, ChangelogType.NOTE, ChangelogType.NOTE]
    found = [decode_note(value) for _, value in task.log.rows[SOURCE.changelog][-2:]]
    assert found == [note(1), note(2)]
    first_send = next(i for i, action in enumerate(task.done[begin:]) if isinstance(action, do.Send))
    logged = [a.value for a in task.done[begin : begin + first_send] if isinstance(a, do.AppendChangelog)]
    assert decode_note(logged[-1]) == note(2)


def test_nothing_else_is_processed_while_results_are_on_their_way() -> None:
    """So a checkpoint never lies between records and the results of their calls."""
    task, a0, a1 = inner()
    task.calls, task.hold = [note(0)], {do.AppendChangelog}
    a0.send(("x", 10, A0))
    a0.progress(100)
    a1.progress(100)
    task.read()
    assert (task.names, task.frames(task.task.outputs[0])) == (["x"], [])
    assert not task.core.at_rest
    frozen = task.core.frozen
    task.tick(5_000)
    assert task.core.frozen == frozen
    task.release()
    assert [seq for seq, _ in task.frames(task.task.outputs[0])] == [1]


def test_a_successor_knows_the_results_since_the_last_commit() -> None:
    """A commit takes them with it: its state has what came of them."""
    task = Logical(Log(), SOURCE).start()
    task.calls = [note(0)]
    task.take("x")
    assert known(task) == dict(note(0).records)
    task.tick(2_000)
    assert known(task) == {}
    task.calls = [note(1, 2)]
    task.take("y", "z")
    after = task.successor().start()
    assert after.core.start_up.fold.since.calls == dict(note(1, 2).records)
    assert after.names == ["y", "z"]


def test_a_sink_that_gathers_logs_results_at_once() -> None:
    """Nothing follows before they are logged, so there is nothing to wait for (D5)."""
    task = Logical(Log(), SOURCE, sink=True).start()
    task.calls = [note(0)]
    task.take("x", more=True)
    assert ChangelogType.NOTE in kinds(task)
    assert task.core.wants_input
    assert IN in task.core.external.position
