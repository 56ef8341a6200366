"""Jobs on one Kafka whose names have dots: topics that two of them would share are refused at the start."""

from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Record, Task, Topic, utf8
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.changelog import ChangelogHeader, ChangelogType
from grete.protocol.commit import Commit, ExternalInput, encode_commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.testing.broker import Broker

pytestmark = pytest.mark.kafka


def start(broker: Broker, directory: Path, name: str, *stages: str) -> None:
    """Start a job with stages of these names: its topics are there then."""
    given = Topic(f"{name}.given", key=utf8, value=utf8)

    def stage(called: str) -> type[Task]:
        class Named(Task):
            name = called
            lines = Input(given)

            def process(self, record: Record[str, str]) -> None: ...

        return Named

    job = Job(name, stages=[stage(each) for each in stages])
    place = JobDirectory(directory / name, address=LogAddress(f"kafka://{broker.bootstrap}"))
    with closing(KafkaLog(broker.bootstrap, group=name)) as log:
        prepare(job, log, place, Settings(), {given.name})


def test_topics_that_dots_make_one_are_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """Else one job would take the other's changelog for its own; jobs with dots that share nothing start."""
    start(kafka_broker, tmp_path, "dots", "b.c")
    for _ in range(2):
        start(kafka_broker, tmp_path, "dots.b", "d")
    with pytest.raises(ConfigError, match=r"would write to topic dots\.b\.c\.changelog, the topic of job 'dots'"):
        start(kafka_broker, tmp_path, "dots.b", "d", "c")
    start(kafka_broker, tmp_path, "dots", "b.c", "e")


def test_a_new_job_is_told_whose_commits_it_has_found(kafka_broker: Broker, tmp_path: Path) -> None:
    """The other job has committed: its graph is not looked at as one that this job has had."""
    start(kafka_broker, tmp_path, "spots", "b.c")
    changelog = TopicPartition("spots.b.c.changelog", 0)
    of_spots = Commit(
        producer=0,
        generation=1,
        checkpoint_id=1,
        previous=0,
        rollback_history=(),
        outputs=(),
        data_count=0,
        data_digest=0,
        attempt=0,
        cursor=b"",
        round_start=0,
        base=0,
        fingerprint=7,
        at_end=False,
        inputs=(),
        known=(),
        external=(ExternalInput("spots.given", 0, 5),),
        nonce=bytes(16),
    )
    committed = encode_commit(ChangelogHeader(ChangelogType.COMMIT, 1, 1, 0), of_spots)
    with closing(KafkaLog(kafka_broker.bootstrap)) as log:
        log.open_metadata("spots").produce_with_meta([ExternalRecord(changelog, None, committed, 1)], {})
    with pytest.raises(ConfigError, match=r"would write to topic spots\.b\.c\.changelog, the topic of job 'spots'"):
        start(kafka_broker, tmp_path, "spots.b", "c")
