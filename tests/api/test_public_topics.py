"""Public topics: read by a stage, and by readers outside as well."""

from typing import Any

import pytest

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.api.tasks.mode import Mode
from grete.errors import GraphError, TaskError
from grete.execution.records.outputs import Outputs
from grete.protocol.frames import decode_columns
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.testing import Kit
from tests.execution.test_outputs import HEADER

LINES = Topic("lines", key=utf8, value=utf8)
COUNTS = Topic("counts", key=utf8, value=int64, public=True)


class Count(Task):
    lines = Input(LINES)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(COUNTS)

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, count)
        self.out.send(record.value, count)


class Sums(Task):
    counts = Input(COUNTS)
    sums = Store("sums", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, self.sums.get(record.key, 0) + record.value)


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
@pytest.mark.parametrize("crashes", [0, 4])
def test_readers_outside_and_a_stage_have_each_record_once(mode: Mode, crashes: int) -> None:
    """Also after crashes, in both modes."""
    kit = Kit(Job("j", stages=[Count, Sums], partitions=2, mode=mode))
    for number in range(30):
        word = "abc"[number % 3]
        kit.feed(LINES, word, word)
    kit.run(crashes=crashes, seed=3)
    outside: dict[str, int] = {}
    for record in kit.outputs(COUNTS):
        outside[record.key] = outside.get(record.key, 0) + record.value
    assert len(kit.outputs(COUNTS)) == 30
    assert kit.state(Sums.sums) == outside


def test_both_ends_have_a_key_where_their_own_number_of_partitions_puts_it() -> None:
    """The topic outside may have another number; turns are taken once; a partition that is named must be in both."""
    job = Job("j", stages=[Count, Sums], partitions=4)
    outputs = Outputs(job.stages[0], job.topology(), Settings(), {"counts": 6}.get)
    send: Any = outputs.sender(COUNTS)
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        send(key, 1)
    for _ in range(12):
        send(None, 2)
    send("named", 3, partition=3)
    with pytest.raises(TaskError, match="partition 4: there are 4"):
        send("named", 3, partition=4)
    inside = [
        (None if key is None else key.decode(), partition.partition)
        for partition, _, body in outputs.take()
        for key in decode_columns(HEADER + body).keys
    ]
    outside = [
        (None if record.key is None else record.key.decode(), record.partition.partition)
        for record in outputs.take_external()
    ]
    for found, count in ((inside, 4), (outside, 6)):
        assert {(key, number) for key, number in found if key in keys} == {
            (key, partition_of(key.encode(), count)) for key in keys
        }
        assert sorted(number for key, number in found if key is None) == sorted(n % count for n in range(12))
        assert ("named", 3) in found


def test_a_topic_is_public_everywhere_or_nowhere() -> None:
    """Two declarations of one name must agree."""
    private = Topic("counts", key=utf8, value=int64)

    class Reads(Task):
        counts = Input(private)

        def process(self, record: Record[str, int]) -> None: ...

    with pytest.raises(GraphError, match=r"topic 'counts' has public=.* in one declaration and .* in another"):
        Job("j", stages=[Count, Reads])
    assert list(Job("j", stages=[Count, Sums]).external_sinks()) == ["counts"]
