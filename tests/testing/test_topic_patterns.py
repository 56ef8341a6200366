"""Outputs whose topics the records name: each is there once, bounded, through crashes."""

from typing import Any

import pytest

from grete import Call, DeadLetter, Input, Job, Output, Record, Task, Topic, TopicPattern, json, utf8
from grete.errors import GraphError, TaskError
from grete.testing import Kit

alerts = Topic("alerts", key=utf8, value=utf8)  # by host → tenant and text
letters = Topic("letters", key=utf8, value=utf8)
by_tenant = TopicPattern(
    "alerts-{tenant}", key=utf8, value=utf8, by=lambda _host, text: text.split(" ")[0], at_most=3, partitions=2
)


class Route(Task):
    """Sends each alert to the topic of its tenant."""

    alerts = Input(alerts, errors=DeadLetter(letters))
    out = Output(by_tenant)

    def process(self, record: Record[str, str]) -> None:
        """Send it."""
        self.out.send(record.key, record.value)


class Strict(Route):
    """The same, and a record that names one topic too many stops it."""

    alerts = Input(alerts)


job = Job("routing", stages=[Route], partitions=2)
TENANTS = ["acme", "bolt", "core"]
FED = [(f"host{n % 7}", f"{TENANTS[n % 3]} {n}") for n in range(30)]


def values(kit: Kit, tenant: str) -> list[str]:
    """Return the alerts of a tenant, sorted."""
    return sorted(value for _, value in kit.pairs(by_tenant.of(tenant)))


@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_in_the_topic_that_it_names_once(seed: int) -> None:
    """Through crashes, and a key has one partition of each topic."""
    kit = Kit(job)
    kit.feed_all(alerts, FED)
    kit.run(crashes=5, seed=seed)
    for tenant in TENANTS:
        assert values(kit, tenant) == sorted(value for _, value in FED if value.startswith(tenant))
        records = kit.outputs(by_tenant.of(tenant))
        assert len({(record.key, record.partition) for record in records}) == len({record.key for record in records})
    assert sorted(record.value for record in kit.outputs(Route.out)) == sorted(value for _, value in FED)
    assert "topic alerts-acme, partition 1" in kit.text()


def test_crashes_change_nothing() -> None:
    """The kit compares the topics that records name, as others."""
    kit = Kit(job)
    kit.feed_all(alerts, FED[:6])
    kit.check_crashes(at_most=20)


def test_what_is_not_committed_is_in_no_topic() -> None:
    """The topic is there, and empty."""
    kit = Kit(job)
    kit.feed(alerts, "host", "acme 1")
    kit.process()
    assert values(kit, "acme") == []
    kit.run()
    assert values(kit, "acme") == ["acme 1"]


def test_one_topic_too_many_is_an_error_of_its_record() -> None:
    """The record becomes a letter that says why; those of the topics that are there go on."""
    kit = Kit(job)
    kit.feed_all(alerts, [*FED[:3], ("host", "dora 1"), ("host", "acme 2"), ("host", "no/name 3")], partition=0)
    kit.run(crashes=3, seed=1)
    assert values(kit, "acme") == ["acme 0", "acme 2"]
    refused = {record.value: dict(record.headers)["grete.error"] for record in kit.outputs(letters)}
    assert sorted(refused) == ["dora 1", "no/name 3"]
    assert b"'alerts-dora' would be one topic more than at_most=3: raise at_most=" in (refused["dora 1"] or b"")
    assert b"by= has returned 'no/name': need letters, digits" in (refused["no/name 3"] or b"")


def test_without_a_policy_it_stops_the_task() -> None:
    """As any other error of a record."""
    kit = Kit(Job("routing", stages=[Strict]))
    kit.feed_all(alerts, [*FED[:3], ("host", "dora 1")])
    with pytest.raises(TaskError, match="'alerts-dora' would be one topic more than at_most=3"):
        kit.run()


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "none"])
def test_each_guarantee_has_named_topics(guarantee: Any) -> None:
    """Without a crash each record is there once."""
    kit = Kit(job, processing_guarantee=guarantee)
    kit.feed_all(alerts, FED)
    kit.run()
    assert sorted(record.value for record in kit.outputs(Route.out)) == sorted(value for _, value in FED)


def echo(text: str) -> str:
    """Return the text."""
    return text


class Asking(Task):
    """Sends what a service has answered: a record is refused when its turn comes."""

    alerts = Input(alerts, errors=DeadLetter(letters))
    ask = Call(echo, result=utf8)
    out = Output(by_tenant)

    async def process(self, record: Record[str, str]) -> None:
        """Ask and send."""
        self.out.send(record.key, await self.ask(record.value))


@pytest.mark.parametrize("seed", range(3))
def test_a_record_with_calls_names_its_topic_in_its_turn(seed: int) -> None:
    """The first three names have topics, whatever answer comes first; one more is an error of its record."""
    kit = Kit(Job("asking", stages=[Asking]))
    kit.feed_all(alerts, [*FED[:6], ("host", "dora 1"), *FED[6:9]])
    kit.run(crashes=3, seed=seed)
    assert [record.value for record in kit.outputs(letters)] == ["dora 1"]
    assert sorted(record.value for record in kit.outputs(Asking.out)) == sorted(value for _, value in FED[:9])


def pattern(text: str, **more: Any) -> TopicPattern[str, str]:
    """Return a pattern with other arguments than usual."""
    return TopicPattern(text, **{"key": utf8, "value": utf8, "by": str, "at_most": 3, **more})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: pattern("alerts"), "need one place for what by= returns"),
        (lambda: pattern("{a}-{b}"), "need one place"),
        (lambda: pattern("{tenant}-alerts"), "the pattern begins with some of them"),
        (lambda: pattern("a b-{tenant}"), "topic name 'a b-x' is refused"),
        (lambda: pattern("a-{}", by="tenant"), "by='tenant': need a function"),
        (lambda: pattern("a-{}", at_most=0), "at_most=0: need 1 to 10,000"),
        (lambda: pattern("a-{}", partitions=0), "partitions=0: need 1 to"),
        (lambda: pattern("a-{}", key=str), "the key of TopicPattern"),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(make: Any, told: str) -> None:
    """The error says what is wrong with it."""
    with pytest.raises(Exception, match=told):
        make()


@pytest.mark.parametrize(
    ("others", "mode", "told"),
    [
        ([by_tenant], "deterministic", "and is deterministic: such a stage keeps for each topic"),
        ([pattern("al{x}")], "aligned", "could name alerts, which the job has for something else"),
        ([pattern("routing.{x}")], "aligned", "could name topics of job 'routing' itself"),
        ([pattern("a-{x}"), pattern("a-b-{x}")], "aligned", "could name one topic"),
        ([pattern("a-{x}"), pattern("a-{x}", at_most=4)], "aligned", "in two declarations that differ"),
    ],
)
def test_patterns_that_name_what_is_there_are_refused(others: list[Any], mode: Any, told: str) -> None:
    """The job is not built."""
    outputs = {f"out{number}": Output(each) for number, each in enumerate(others)}
    stage = type("Many", (Task,), {"lines": Input(alerts), "process": lambda _self, _record: None, **outputs})
    with pytest.raises(GraphError, match=told):
        Job("routing", stages=[stage], mode=mode)


def test_a_pattern_has_serdes_as_a_topic_has() -> None:
    """JSON values too, and ``makes`` knows the names that could come of it."""
    typed = TopicPattern("n-{kind}-v1", key=utf8, value=json(dict[str, int]), by=lambda key, _: key, at_most=1)
    assert typed.of("a").name == "n-a-v1"
    assert [typed.makes(name) for name in ("n-a-v1", "n--v1", "n-a.b-v1", "m-a-v1")] == [True, False, False, False]
