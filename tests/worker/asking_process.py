"""A process that tells and asks positions all the time; its standard input says when to stop. See test_outage.py."""

import sys
import threading

from grete.logs.kafka import KafkaLog, group_positions
from grete.logs.kafka.client import metadata_client
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition


def ask(bootstrap: str, topic: str) -> None:
    """Publish a higher position each time that one is known, and say so."""
    # these are 60 and 10 s: the broker is away for longer
    group_positions.ANSWER_S_MAX = metadata_client.ANSWER_S = 0.5
    log, partition, position = KafkaLog(bootstrap, group=topic, patience=Patience()), TopicPartition(topic, 0), 0
    end = threading.Thread(target=sys.stdin.read, daemon=True)
    end.start()
    while end.is_alive():
        if log.processed([partition]).get(partition, 0) == position:
            position += 1
            sys.stdout.write(f"{position}\n")
            sys.stdout.flush()
            log.report_processed({partition: position})
        log.poll()
        log.wait(10)
    log.close()


if __name__ == "__main__":
    ask(*sys.argv[1:])
