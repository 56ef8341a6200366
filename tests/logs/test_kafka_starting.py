"""A broker that is starting up: it answers before it is one of its own cluster, and says that the cluster has none."""

import asyncio
import os
import struct

import pytest

from grete.logs.kafka import KafkaLog
from grete.protocol.ids import TopicPartition
from grete.testing.broker.find import Broker
from grete.testing.broker.settings import free_port
from grete.testing.proxy import Proxy, read

METADATA = 3  # what a Kafka client asks
CLUSTER = b"cluster"
EMPTY = struct.pack(">xib", 0, 1) + struct.pack(">B", len(CLUSTER) + 1) + CLUSTER + struct.pack(">ib", -1, 1)
ENDS = {12: struct.pack(">x"), 13: struct.pack(">hx", 0)}  # by the version in which ours asks brokers of 3.9, and of 4


class StartingBroker(Proxy):
    """The first question of each connection for the cluster's brokers is answered with none; the rest is passed on."""

    asked = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests on one by one."""
        to_reader, to_writer = await self.reach(writer)
        back = asyncio.create_task(self._pass(to_reader, writer))
        asked = False
        try:
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(int.from_bytes(size))
                key, version, number = struct.unpack_from(">hhi", request)
                if key == METADATA and not asked:
                    answer = EMPTY + ENDS[version]
                    asked, self.asked = True, self.asked + 1
                    writer.write(struct.pack(">ii", 4 + len(answer), number) + answer)
                else:
                    to_writer.write(size + request)
        except (asyncio.IncompleteReadError, ConnectionError):
            to_writer.close()
        await back

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await read(reader):
            writer.write(data)
        writer.close()


@pytest.mark.kafka
def test_a_broker_that_is_starting_up_is_asked_again(kafka_broker: Broker) -> None:
    """The client does not repeat what it asked for itself until minutes have passed: a worker would wait for them."""
    port = free_port()
    at = TopicPartition(f"t{os.urandom(6).hex()}", 0)
    with StartingBroker(port, int(kafka_broker.bootstrap.rpartition(":")[2])) as starting:
        log = KafkaLog(f"127.0.0.1:{port}")
        log.create_topic(at.topic, 1)
        log.send(0, 0, at, b"x")
        while not log.poll():
            log.wait(1_000)
        assert [row.value for row in log.read(at, 0, 1)] == [b"x"]
        log.close()
        assert starting.asked >= 2  # by the producer, and by one that asks again
