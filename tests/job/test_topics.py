"""The topics of a job, before its first start: which of them a person has to make, and how."""

from pathlib import Path

import pytest

from framework.errors import ConfigError
from framework.job.topics import missing_topics
from framework.logs.embedded import EmbeddedLog
from grete import Input, Job, Record, Task, Topic, utf8

ORDERS, PEOPLE = Topic("orders", key=utf8, value=utf8), Topic("people", key=utf8, value=utf8)


class Both(Task):
    """Reads two topics."""

    orders = Input(ORDERS)
    people = Input(PEOPLE)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_inputs_of_different_partition_counts_have_a_way_out(tmp_path: Path, partitions: int) -> None:
    """No number of partitions suits both: the advice is not the number of one of them, but a copy of the smaller."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("orders", 2, plain=True)
    log.create_topic("people", 3, plain=True)
    with pytest.raises(ConfigError) as error:
        missing_topics(Job("j", stages=[Both], partitions=partitions), log, fed=())
    text = str(error.value)
    assert "reads orders, which has 2 partitions, and people, which has 3" in text
    assert "Create a topic with 3 partitions, copy orders to it" in text
    log.close()
