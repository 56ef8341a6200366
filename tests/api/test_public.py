"""The public API: its names, and the design's example as it is there."""

import grete
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from tests.execution.harness import Rig

sentences = Topic("sentences", key=utf8, value=utf8)
totals = Topic("word-totals", key=utf8, value=int64)


class CountWords(Task):
    lines = Input(sentences)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            n = self.counts.get(word, 0) + 1
            self.counts.put(word, n)
            self.out.send(word, n)


job = Job("word-count", stages=[CountWords])


def test_the_designs_word_count_runs() -> None:
    """The first example of the API, line by line, counts words (and mypy --strict reads it here)."""
    rig = Rig(job)
    rig.rows("sentences", [(None, b"to be or not to be", 5), (None, b"be", 6)])
    sent = [(key, int64.decode(value or b""), timestamp) for _, key, value, timestamp in rig.external()]
    assert sent == [
        (b"to", 1, 5),
        (b"be", 1, 5),
        (b"or", 1, 5),
        (b"not", 1, 5),
        (b"to", 2, 5),
        (b"be", 2, 5),
        (b"be", 3, 6),
    ]
    assert list(rig.task.counts.all()) == [("be", 3), ("not", 1), ("or", 1), ("to", 2)]


def test_the_public_names_are_these() -> None:
    """A name is added to or taken from the public API on purpose."""
    assert grete.__all__ == [
        "AsyncClient",
        "BatchCall",
        "ById",
        "BySequence",
        "CalendarWindow",
        "Call",
        "CallError",
        "Client",
        "Context",
        "CountWindow",
        "DeadLetter",
        "Every",
        "External",
        "ExternalSource",
        "Files",
        "HoppingWindow",
        "Http",
        "Input",
        "IntervalJoin",
        "Job",
        "Key",
        "Once",
        "Output",
        "Pair",
        "Record",
        "SchemaRegistry",
        "Serde",
        "SessionWindow",
        "SlidingWindow",
        "SourceRecord",
        "Store",
        "Table",
        "TableJoin",
        "Task",
        "Timer",
        "Timers",
        "Topic",
        "TopicPattern",
        "TraceIds",
        "TumblingWindow",
        "VersionedStore",
        "Window",
        "Writer",
        "async_client",
        "avro",
        "bytes_serde",
        "client",
        "int64",
        "json",
        "on",
        "protobuf",
        "repartition",
        "utf8",
    ]
    assert all(hasattr(grete, name) for name in grete.__all__)
