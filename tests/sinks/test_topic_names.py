"""The list of topics that records have named: noted before they are made, and one list for all processes of a job."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete import Input, Job, Output, Record, Task, Topic, TopicPattern, utf8
from grete.errors import ConfigError, TaskError
from grete.job.directory import JobDirectory
from grete.job.named_topics import NAMED, JobTopicNames, named_topics, topics_there
from grete.ports import JobLog
from grete.settings import Settings
from grete.state.pins.plan import plan_of
from grete.state.pins.prepare import prepare

by_tenant = TopicPattern("of-{tenant}", key=utf8, value=utf8, by=lambda _, text: text, at_most=2)
ALERTS = Topic("alerts", key=utf8, value=utf8)


class Route(Task):
    """Sends each alert to the topic of its tenant."""

    alerts = Input(ALERTS)
    out = Output(by_tenant)

    def process(self, record: Record[str, str]) -> None:
        """Send it."""
        self.out.send(record.key, record.value)


class Plain(Task):
    """The same, before it had that output."""

    name = "route"
    alerts = Input(ALERTS)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


Open = Callable[[], tuple[JobLog, JobTopicNames]]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Return the function that opens log and names of one more process of the job."""
    place, logs = JobDirectory(tmp_path), list[JobLog]()

    def make() -> tuple[JobLog, JobTopicNames]:
        job, log = Job("routing", stages=[Route], partitions=2), place.open_log()
        logs.append(log)
        return log, JobTopicNames(job, log, prepare(job, log, place, Settings()), place)

    yield make
    for log in logs:
        log.close()


def named(log: JobLog) -> Any:
    """Return the topics that are noted."""
    return named_topics(log.read_metadata("routing")).get("of-{tenant}", {})


def test_a_topic_is_noted_before_it_is_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies in between leaves a name; the next one that needs the topic makes it, as it was noted."""
    log, names = opened()

    def dies(*_: object, **__: object) -> None:
        assert named(log) == {"of-acme": 2}
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "create_topic", dies)
    with pytest.raises(KeyboardInterrupt):
        names.partitions(by_tenant, "of-acme", 2)
    log, names = opened()
    assert topics_there(Job("routing", stages=[Route], partitions=2), log) == {}
    assert names.partitions(by_tenant, "of-acme", 9) == log.partitions("of-acme") == 2


def test_processes_share_one_list_and_one_bound(opened: Open) -> None:
    """Each adds to what the other has noted since it looked; beyond the bound both refuse, others go on."""
    (log, one), (_, other) = opened(), opened()
    assert one.partitions(by_tenant, "of-acme", 2) == other.partitions(by_tenant, "of-bolt", 2) == 2
    assert named(log) == {"of-acme": 2, "of-bolt": 2}
    for names in (one, other):
        with pytest.raises(TaskError, match="'of-core' would be one topic more than at_most=2"):
            names.partitions(by_tenant, "of-core", 2)
        assert names.partitions(by_tenant, "of-bolt", 2) == 2
    assert log.partitions("of-core") is None


def test_a_topic_that_is_there_keeps_its_partitions(opened: Open) -> None:
    """The job writes to all partitions of a topic that others have made, and to no more when it gets more later."""
    log, names = opened()
    log.create_topic("of-acme", 5, plain=True)
    assert names.partitions(by_tenant, "of-acme", 2) == 5
    log.create_topic("of-acme", 7, plain=True, grow=True)
    assert opened()[1].partitions(by_tenant, "of-acme", 2) == 5


def test_a_topic_with_fewer_partitions_is_refused(opened: Open) -> None:
    """It was made again: keys would go elsewhere."""
    log, _ = opened()
    log.create_topic("of-acme", 2, plain=True)
    entry = json.dumps({"format": 1, "topics": {"of-{tenant}": {"of-acme": 4}}})
    assert log.open_metadata("routing").pin({NAMED: entry.encode()}, None)
    with pytest.raises(ConfigError, match="of-acme has 2 partitions, and job 'routing' has written to 4"):
        opened()[1].partitions(by_tenant, "of-acme", 2)


def test_a_list_of_a_newer_release_is_refused(opened: Open) -> None:
    """Before anything starts."""
    log, _ = opened()
    assert log.open_metadata("routing").pin({NAMED: b'{"format": 2}'}, None)
    with pytest.raises(ConfigError, match="what this release cannot read"):
        opened()


def test_a_plan_says_that_a_pattern_is_new_or_gone(tmp_path: Path) -> None:
    """As it does of output topics."""
    place = JobDirectory(tmp_path)
    with closing(place.open_log()) as log:
        for before, now, told in ((Plain, Route, "is new"), (Route, Plain, "is no longer written")):
            prepare(Job("routing", stages=[before], partitions=2), log, place, Settings())
            rows = plan_of(Job("routing", stages=[now], partitions=2), log, Settings())
            assert [row.what for row in rows] == [f"output topic 'of-{{tenant}}' {told}"]
