"""The invariant of priorities: while an input of a higher priority has rows at hand, no other is read."""

from collections import Counter
from collections.abc import Collection, Mapping

from grete.execution.inputs.input_reader import InputReader
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.oracle import Violation


def check_priorities(reader: InputReader, process: str, priorities: Mapping[str, int], seen: Counter[str]) -> None:
    """Compare each batch that an input reader gives with what it holds of other inputs; count those that wait."""
    read = reader.next_batch

    def checked(first: Collection[TopicPartition] = ()) -> tuple[TopicPartition, list[LogRow]] | None:
        batch = read(first)
        if batch is None or batch[0] not in reader._ordered:
            return batch
        given = priorities.get(batch[0].topic, 0)
        for partition in reader._held:
            priority = priorities.get(partition.topic, 0)
            if priority > given and (not first or partition in first):
                raise Violation("priority", f"{process}: was given {batch[0]}, and {partition} has rows at hand")
            seen["reads while an input of a lower priority waits"] += priority < given
        return batch

    setattr(reader, "next_batch", checked)  # noqa: B010  # mypy does not let a method be assigned
