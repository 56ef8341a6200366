"""From a record's input to its output at a reader of committed records, while a steady load comes.

The reader runs along and costs the broker, so that processor time is measured in another run. Of a page's n-th record
the output is the one whose count is n: two records of a page that come within milliseconds may change places.
"""

import threading
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from benchmarks.wide.cell import Asked, Scene, scene

LINGER_MS = 1  # of the load: more would be in each measurement
DRAIN_S = 5.0  # of reading on when the load has ended


class Early(NamedTuple):
    """Delays in ms, of that many outputs."""

    outputs: int
    p50: float
    p99: float
    most: float


class _Reader:
    """Takes the time of each output from the present ends on, in a thread."""

    def __init__(self, here: Scene) -> None:
        settings = {"group.id": "early", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": here.servers, "fetch.wait.max.ms": 5, **settings})
        ends = (KafkaPartition(here.topics[1], number) for number in range(here.asked.partitions))
        at = [(each, self._consumer.get_watermark_offsets(each, 30)[1]) for each in ends]
        self._consumer.assign([KafkaPartition(each.topic, each.partition, end) for each, end in at])
        self.delays_ms, self._sent, self._over = list[float](), here.sent_at, threading.Event()
        self._thread = threading.Thread(target=self._run, name="reads outputs")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.01):
                key, value, now = message.key(), message.value(), time.monotonic()
                if message.error() is None and key is not None and value is not None:
                    sent = self._sent[key.decode()][int.from_bytes(value, "big") - 1]
                    self.delays_ms.append((now - sent) * 1_000)

    def close(self) -> None:
        """End it: the delays stay."""
        self._over.set()
        self._thread.join()
        self._consumer.close()


def early(asked: Asked, folder: Path, rate: int, warm_s: float, seconds: float) -> Early:
    """Measure under a steady load for so long, once it was there for ``warm_s``."""
    with scene(asked, folder, LINGER_MS) as here:
        here.start()
        here.load(rate, warm_s)
        reader = _Reader(here)
        here.load(rate, seconds)
        time.sleep(DRAIN_S)
        reader.close()
        here.stamps()
        delays = sorted(reader.delays_ms) or [0.0]
        return Early(len(delays), delays[len(delays) // 2], delays[len(delays) * 99 // 100], delays[-1])
