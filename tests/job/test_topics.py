"""The topics of a job, before its first start: which of them a person has to make, and how."""

from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Record, Task, Topic, utf8
from grete.errors import ConfigError
from grete.job.topics import missing_topics
from grete.logs.embedded import EmbeddedLog

ORDERS, PEOPLE = Topic("orders", key=utf8, value=utf8), Topic("people", key=utf8, value=utf8)


class Both(Task):
    """Reads two topics."""

    orders = Input(ORDERS)
    people = Input(PEOPLE)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_inputs_of_different_partition_counts_have_a_way_out(tmp_path: Path, partitions: int) -> None:
    """No number of partitions suits both: the smaller one is read whole in each task, or copied."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("orders", 2, plain=True)
    log.create_topic("people", 3, plain=True)
    with pytest.raises(ConfigError) as error:
        missing_topics(Job("j", stages=[Both], partitions=partitions), log, fed=())
    text = str(error.value)
    assert "reads orders, which has 2 partitions, and people, which has 3" in text
    assert "If orders is small, let each task read all of it: Input(…, broadcast=True)" in text
    assert "Else let a stage of its own read orders and send each record on to this one" in text
    log.close()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_broadcast_input_may_have_any_number_of_partitions(tmp_path: Path, count: int) -> None:
    """Each task reads all of it, so no number has to fit (A2d); the same for a job that had made none of its topics."""
    whole = type("Whole", (Both,), {"orders": Input(ORDERS, broadcast=True)})
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("orders", count, plain=True)
    log.create_topic("people", 3, plain=True)
    job = Job("j", stages=[whole], partitions=3)
    assert missing_topics(job, log, fed=()) == [("j.whole.changelog", 3, False)]
    assert missing_topics(job, log) == [("j.whole.changelog", 3, False)]
    log.close()


def test_a_missing_broadcast_input_is_made_with_the_jobs_number(tmp_path: Path) -> None:
    """A missing broadcast topic is made; on a foreign log the user makes it, with a number of partitions that works."""
    whole = type("Whole", (Both,), {"orders": Input(ORDERS, broadcast=True)})
    log, job = EmbeddedLog(tmp_path / "log.db"), Job("j", stages=[whole], partitions=3)
    assert ("orders", 3, True) in missing_topics(job, log)
    with pytest.raises(ConfigError, match=r"there is no topic orders.*--create --topic orders --partitions 3"):
        missing_topics(job, log, fed=["people"])
    log.close()


class Second(Task):
    """Reads another topic."""

    people = Input(PEOPLE)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


def test_an_input_with_another_number_than_the_job_names_both_ways(tmp_path: Path) -> None:
    """The number of the job, or, where it has more stages, that of the stage alone."""
    first = type("First", (Second,), {"people": Input(ORDERS)})
    with closing(EmbeddedLog(tmp_path / "log.db")) as log:
        log.create_topic("orders", 2, plain=True)
        log.create_topic("people", 3, plain=True)
        with pytest.raises(ConfigError) as error:
            missing_topics(Job("j", stages=[first, Second], partitions=2), log, fed=())
        text = str(error.value)
        assert "topic people has 3 partitions, and job 'j' has 2 where stage 'second' reads it" in text
        assert text.endswith("write Job(…, partitions=3); or, for this stage alone, partitions = 3 in class Second")
        own = type("Second", (Second,), {"partitions": 4})
        with pytest.raises(ConfigError, match=r"has 4 where .* reads it: write partitions = 3 in class Second$"):
            missing_topics(Job("j", stages=[first, own], partitions=2), log, fed=())
        own = type("Second", (Second,), {"partitions": 3})
        wanted = missing_topics(Job("j", stages=[first, own], partitions=2), log, fed=())
        assert wanted == [("j.first.changelog", 2, False), ("j.second.changelog", 3, False)]
