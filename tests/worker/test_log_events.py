"""Each line that Grete logs has a name that never changes: in the table, on the page, in the JSON of a real run."""

import json
from pathlib import Path

from docs.hooks.events import events
from grete.errors import FIELDS
from grete.log_events import EVENTS, event_of
from tests.worker.workers import WorkerUnderTest, say, until_committed, word_log

COMMON = {"id", "level", "event", "timestamp", "job", "partition", "stage", "generation", "trace_id", "span_id"}


def test_each_call_of_a_logger_has_one_event_and_each_event_a_call() -> None:
    """A line without a name is found, and a name that no line has."""
    assert {each.known for each in events()} == {*EVENTS}
    assert len({event.name for event in EVENTS}) == len(EVENTS)
    assert all(event.when and event.remedy for event in EVENTS)


def test_a_line_has_the_name_of_its_text_and_not_of_a_shorter_one() -> None:
    """An event whose text begins like another's comes before it; what is not ours has no name."""
    for number, event in enumerate(EVENTS):
        assert event_of(event.begins) == event
        assert not any(later.begins.startswith(event.begins) for later in EVENTS[number + 1 :])
    assert event_of("a line of a library") is None


def test_the_lines_of_a_real_worker_are_as_they_are_documented(tmp_path: Path) -> None:
    """Each has an id, its documented level, and no field that the page does not have; a refusal, too."""
    log = word_log(tmp_path / "job")
    say(log, "a b")
    with WorkerUnderTest(tmp_path / "job") as good:
        good.running()
        until_committed(log, 1)
        good.leave()
        good.ends()
    with WorkerUnderTest(tmp_path / "job", partition=7) as bad:
        bad.ends()
    lines = [json.loads(line) for each in (good, bad) for line in each.log_path.read_text().splitlines()]
    assert {line["id"] for line in lines} >= {"worker-started", "task-ready", "worker-done"}
    assert len(lines) > 3
    on_page = [*events()]
    for line in lines:
        documented = [each for each in on_page if each.known.name == line["id"]]
        assert line["level"].lower() in {each.level for each in documented}
        named = {name for each in documented for name in each.fields}
        assert set(line) <= COMMON | named | {*FIELDS, "error", "code", "kind", "traceback", "cause"}, line
