"""A process that asks its group's coordinator all the time, until its standard input ends. See test_outage.py."""

import contextlib
import sys
import threading

from confluent_kafka import KafkaException

from grete.logs.kafka import KafkaLog, group_positions
from grete.logs.kafka.admin import Topics
from grete.logs.kafka.client import metadata_client
from grete.logs.kafka.client.errors import Troubles
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition

ANSWER_S = 0.5  # instead of 60 and 10: the broker is away for longer
RIGHTS_S = 0.1  # between two questions for the rights on the group


def ask(bootstrap: str, topic: str) -> None:
    """Publish a higher position each time that one is known, and say so; ask for rights as `grete doctor` does."""
    group_positions.ANSWER_S_MAX = metadata_client.ANSWER_S = ANSWER_S
    log, partition, position = KafkaLog(bootstrap, group=topic, patience=Patience()), TopicPartition(topic, 0), 0
    end = threading.Thread(target=sys.stdin.read, daemon=True)
    end.start()
    threading.Thread(target=_ask_for_rights, args=(bootstrap, topic, end), daemon=True).start()
    while end.is_alive():
        if log.processed([partition]).get(partition, 0) == position:
            position += 1
            sys.stdout.write(f"{position}\n")
            sys.stdout.flush()
            log.report_processed({partition: position})
        log.poll()
        log.wait(10)
    log.close()


def _ask_for_rights(bootstrap: str, group: str, end: threading.Thread) -> None:
    topics = Topics({"bootstrap.servers": bootstrap}, Troubles(lambda text: text), Patience())
    while end.is_alive():
        with contextlib.suppress(KafkaException, TimeoutError):
            topics.group_rights(group, ANSWER_S)
        end.join(RIGHTS_S)


if __name__ == "__main__":
    ask(*sys.argv[1:])
