"""Topics of a broker, made, deleted and widened by somebody else: what is returned from, the broker's answers show.

An administrator's answer comes when the controller has decided. A broker that is asked in the next moment may not have
heard of it yet, and calls the topic unknown.
"""

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.waiting import until

LIMIT_S = 30.0


def create(client: AdminClient, *topics: NewTopic) -> None:
    """Create these topics; return when each partition has a leader."""
    for made in client.create_topics(list(topics)).values():
        made.result(LIMIT_S)
    for topic in topics:
        _show(client, topic.topic, topic.num_partitions)


def delete(client: AdminClient, *names: str) -> None:
    """Delete these topics; return when none is listed."""
    for gone in client.delete_topics(list(names)).values():
        gone.result(LIMIT_S)
    for name in names:
        _show(client, name, None)


def widen(client: AdminClient, name: str, partitions: int) -> None:
    """Give a topic more partitions; return when each has a leader."""
    client.create_partitions([NewPartitions(name, partitions)])[name].result(LIMIT_S)
    _show(client, name, partitions)


def _show(client: AdminClient, name: str, led: int | None) -> None:
    """Wait until the broker shows a leader for that number of partitions, or None: no such topic."""
    what = f"topic {name} with {led} partitions"
    until(lambda: _led(client, name) == led, what, saw=lambda: f"{_led(client, name)} partitions")


def _led(client: AdminClient, name: str) -> int | None:
    # All topics are listed: a question by name could create it.
    found = client.list_topics(timeout=LIMIT_S).topics.get(name)
    return None if found is None else sum(each.leader >= 0 for each in found.partitions.values())
