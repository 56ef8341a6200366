"""Messages between the two stages and in the changelogs, counted while they come: streams are trimmed soon after.

To read along costs the broker, so that processor time is measured in another run.
"""

import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from benchmarks.running import tree
from benchmarks.wide.cell import Asked, scene
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import frame_count

STREAM, CHANGELOGS = "wide.route.routed.count", ("wide.route.changelog", "wide.count.changelog")


class Counted(NamedTuple):
    """Messages a second: of the stream by kind, of all changelogs with the ends of their transactions."""

    markers: float  # of checkpoints
    progress: float  # messages, of deterministic tasks
    frames: float
    records_a_frame: float
    changelogs: float
    threads: int  # of the process that has most


class _Along:
    """Reads a topic from its present ends on, in a thread, and counts."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "counting", "enable.auto.commit": False})
        self._consumer.assign([KafkaPartition(topic, n, _end(self._consumer, topic, n)) for n in range(partitions)])
        self.kinds, self.records, self._over = Counter[MessageType](), 0, threading.Event()
        self._thread = threading.Thread(target=self._run, name="counts what comes")
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(5_000, 0.2):
                value = message.value()
                if message.error() is None and value is not None:
                    kind = decode_header(value).type
                    self.kinds[kind] += 1
                    self.records += frame_count(value) if kind is MessageType.FRAME else 0

    def close(self) -> None:
        """End it: the counts stay."""
        self._over.set()
        self._thread.join()
        self._consumer.close()


def _end(consumer: Consumer, topic: str, partition: int) -> int:
    end: int = consumer.get_watermark_offsets(KafkaPartition(topic, partition), 30)[1]
    return end


def counted(asked: Asked, folder: Path, rate: int, warm_s: float, seconds: float) -> Counted:
    """Count under a steady load for so long, once it was there for ``warm_s``."""
    tasks = asked.tasks or asked.partitions
    with scene(asked, folder) as here:
        here.start()
        here.load(rate, warm_s)
        looking = Consumer({"bootstrap.servers": here.servers, "group.id": "looking"})

        def written() -> int:
            return sum(_end(looking, topic, number) for topic in CHANGELOGS for number in range(tasks))

        along, before = _Along(here.servers, STREAM, tasks), written()
        here.load(rate, seconds)
        changelogs = (written() - before) / seconds
        along.close()
        looking.close()
        threads = max(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in tree(here.pid))
        here.stamps()
        frames = along.kinds[MessageType.FRAME]
        markers = along.kinds[MessageType.MARKER] / seconds
        progress = sum(along.kinds[kind] for kind in (MessageType.PROGRESS, MessageType.JOINT_PROGRESS)) / seconds
        return Counted(markers, progress, frames / seconds, along.records / max(1, frames), changelogs, threads)
