"""The techniques of the paper that are jobs of their own: they leave the plain index, as their guarantee says."""

import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks.latency.job import PARTITIONS, changes, documents
from benchmarks.paper.batches import BATCH_MS, IndexBatches, SplitBatches, cut_after
from benchmarks.paper.machines import network
from benchmarks.paper.recount import Recount, recount
from grete import Job
from grete.testing import Kit
from grete.testing.broker import Broker

TEXTS = ["One two one", "two three", "four", "one four four", "six", "two one six"]
DUE = Counter({"one": 3, "two": 3, "three": 1, "four": 2, "six": 2})


def batches() -> Kit:
    return Kit(Job("batches", stages=[SplitBatches, IndexBatches], partitions=PARTITIONS))


def index_of(kit: Kit) -> Recount:
    stores = kit.state(IndexBatches.postings), kit.state(IndexBatches.words)
    return recount(TEXTS, stores[0].items(), stores[1].items())


def test_a_batch_is_cut_half_an_interval_off_the_checkpoints() -> None:
    """At each time the next cut is ahead, by an interval at most."""
    assert [cut_after(now) for now in (0, 499, 500, 1_499)] == [500, 500, 1_500, 1_500]
    assert BATCH_MS == 1_000


def test_a_stage_begins_when_the_one_before_has_ended_the_batch() -> None:
    """Until the cut nothing leaves the first stage; then both stages commit the batch as one."""
    kit = batches()
    kit.now_ms = cut_after(kit.now_ms)
    for number, text in enumerate(TEXTS):
        kit.feed(documents, str(number), text, partition=number % PARTITIONS)
    kit.process()
    assert kit.state(SplitBatches.waiting) == {}  # not committed yet
    kit.advance(BATCH_MS // 2 + 100)  # a checkpoint within the batch
    assert kit.state(SplitBatches.waiting) == {str(number): text for number, text in enumerate(TEXTS)}
    assert kit.outputs(changes) == []
    kit.advance(BATCH_MS)
    assert Counter(record.key for record in kit.outputs(changes)) == DUE
    assert index_of(kit).equal
    assert kit.state(SplitBatches.waiting) == {}
    assert kit.state(IndexBatches.waiting) == {}


@pytest.mark.parametrize("seed", range(4))
def test_micro_batches_are_exactly_once(seed: int) -> None:
    """Tasks that die at any time: each output comes once, and the state is the plain index."""
    kit, draw = batches(), random.Random(seed)
    left = list(enumerate(TEXTS))
    for _ in range(200):
        if left and draw.random() < 0.1:
            number, text = left.pop(0)
            kit.feed(documents, str(number), text, partition=number % PARTITIONS)
        kit.advance(draw.randint(1, 100))
        if draw.random() < 0.1:
            kit.crash(draw.choice(["split", "index"]), draw.randrange(PARTITIONS), other_host=draw.random() < 0.3)
    kit.advance(10 * BATCH_MS)
    assert Counter(record.key for record in kit.outputs(changes)) == DUE
    assert index_of(kit).equal


def measured(log: str, *options: str) -> Recount:
    """Run a cell that may have few checkpoints, as on a busy machine; return the distance of its state."""
    own = ["partitions=2", "seconds=1.5", "rate=20", "checkpoint_interval_ms=100", *options]
    command = [sys.executable, "-m", "benchmarks.paper.tail", log, *own]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    index = Recount(**found["index"])
    assert index.postings == found["records"] > 0
    assert len(found["of_documents"]) == 30
    assert found["cpu_s"] > 0
    assert found["checkpoints"] > 0
    return index


@pytest.mark.chaos  # network namespaces with a broker at their switch, as root
@pytest.mark.timeout(120)
def test_workers_on_machines_leave_the_index_of_a_plain_recount() -> None:
    """A worker on each of two machines, each with stores of its own: together they hold every posting once."""
    with network(2) as (on, log):
        assert measured(log, "mode=exactly-once", f"machines={on}").equal


@pytest.mark.kafka
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["strong productions", "micro-batches"])
def test_techniques_run_for_real_and_leave_the_index_of_a_plain_recount(kafka_broker: Broker, mode: str) -> None:
    """Two jobs with a topic between them, or stages that wait for one another: every posting is in the state once."""
    assert measured(f"kafka://{kafka_broker.bootstrap}", f"mode={mode}").equal
