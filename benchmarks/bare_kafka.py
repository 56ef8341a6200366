"""The fastest loop that this machine's Python can do for the counting job, with what a framework adds left out.

No frames, checkpoints, claims or generic code; one process for all partitions. A transaction a second; counts in dicts;
at a commit the changed keys go to a changelog topic and, as one batch, to RocksDB. A crash between the two would lose
it its place: it is a measure, not a program.

    python -m benchmarks.bare_kafka BOOTSTRAP OUTPUT_TOPIC MESSAGES DIRECTORY
"""

import struct
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from rocksdict import Options, Rdict, WriteBatch

from benchmarks.counting import PARTITIONS, Counted, Event, events_topic

COMMIT_S = 1.0
ANSWER_S = 30.0


class Partition:
    """Counts of one partition: all of them, and those that changed since the last commit."""

    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.counts: dict[str, int] = {}
        self.changed: set[str] = set()
        self.next_offset = 0
        self.store = Rdict(str(directory / str(number)), Options(raw_mode=True))

    def save(self, producer: Producer, changelog: str) -> None:
        """Send changed counts to the changelog, and write them to the store."""
        batch = WriteBatch(raw_mode=True)
        for key in self.changed:
            name, count = key.encode(), struct.pack(">q", self.counts[key])
            producer.produce(changelog, count, name, self.number)
            batch.put(name, count)
        self.store.write(batch)
        self.changed.clear()


def main(bootstrap: str, output: str, messages: int, directory: Path) -> None:
    """Count until ``messages`` were read and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": output,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    events = events_topic(messages)
    consumer.assign([TopicPartition(events, number, 0) for number in range(PARTITIONS)])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": output,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    producer.init_transactions(ANSWER_S)
    partitions = [Partition(number, directory) for number in range(PARTITIONS)]
    decode, encode = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
    done = 0
    producer.begin_transaction()
    commit_at = time.monotonic() + COMMIT_S
    while done < messages:
        message: Any  # the client's types allow None, which is for errors
        for message in consumer.consume(1_000, 0.05):
            partition = partitions[message.partition()]
            key = decode(message.value()).key
            partition.counts[key] = count = partition.counts.get(key, 0) + 1
            partition.changed.add(key)
            partition.next_offset = message.offset() + 1
            producer.produce(output, encode(Counted(key, count)), message.key())
            done += 1
        producer.poll(0)
        if time.monotonic() >= commit_at or done >= messages:
            for partition in partitions:
                partition.save(producer, f"{output}-changelog")
            positions = [TopicPartition(events, at.number, at.next_offset) for at in partitions]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), ANSWER_S)
            producer.commit_transaction(ANSWER_S)
            producer.begin_transaction()
            commit_at = time.monotonic() + COMMIT_S
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
