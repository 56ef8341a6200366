"""Stops a task whose input holds a key of another task: in another partition than the one where its state is.

The first keys of an input show its partitioner (grete.core.graph.partitioners), which is then pinned in the job's
metadata. From then on, of each batch one key in SAMPLE_STEP is compared, at least 4: murmur2 costs 1 to 2 µs a key in
Python, and a record 3 µs at the least, so all keys would cost a third of the throughput. Batches of less than 8 records
are compared key by key. After a rescale each key is compared, once while it is remembered: a producer goes on with the
old number of partitions until it asks for new metadata, and what it writes then is known to be at risk.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.serdes.serde import placing_of
from grete.core.graph.partitioners import KeyAt, Partitioner, Recognized, Recognizer
from grete.errors import FrameworkError, Halted
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.job.key_advice import differing_inputs, misplaced, placed_otherwise, two_producers
from grete.job.key_metadata import Rescaled, has_state, pin, pinned, rescaled
from grete.ports import JobMetadata
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import crc32_partition_of, partition_of
from grete.settings import Settings

SAMPLE_STEP = 32  # of a pinned input, one key of this many is compared: below 2 % of a record's cost
AT_LEAST = 4  # keys of each batch
UNPINNED_KEYS_MAX = 64  # of each batch, until the partitioner is known
KNOWN_MAX = 16_384  # keys that were compared and need not be again, after a rescale

Keys = Sequence[bytes | None]
Look = Callable[[Sequence[int], Keys], None]  # offsets, keys

logger = logging.getLogger("grete")


class JobKeys:
    """The pinned partitioners of a job's inputs, as one worker knows them."""

    def __init__(self, job: Job, metadata: JobMetadata, job_directory: JobDirectory, settings: Settings) -> None:
        """Read what is pinned. Raises ConfigError."""
        self.job = job
        self.halts = settings.misplaced_keys == "halt"
        self._metadata, self._job_directory = metadata, job_directory
        topology = job.topology()
        topics = {topic for stage in job.stages for topic in topology.keyed_externals_of(stage.ordinal)}
        self.pinned = pinned(metadata, sorted(topics)) if job.workers > 1 else {}
        self._rescales = {stage.name: rescaled(metadata, job, stage) for stage in job.stages if stage.partitions > 1}

    def check_of(self, stage: StageGraph, partition: int) -> "KeyCheck | None":
        """Return the check of a task's inputs; None if it keeps nothing by key, or is the only task.

        Raises Halted: the inputs are partitioned differently.
        """
        topics = self.job.topology().keyed_externals_of(stage.ordinal)
        if stage.partitions == 1 or not topics or not has_state(stage):
            return None
        read = self.job.topology().external_partitions(stage.ordinal, partition)
        return KeyCheck(self, stage, [each for each in read if each.topic in topics])

    def rescaled(self, stage: StageGraph, topic: str) -> Rescaled | None:
        """Return the rescale that gave the stage and this input of it their partitions, None if there was none."""
        return None if topic in self.job.topology().counts else self._rescales.get(stage.name)

    def pin(self, topic: str, partitioner: Partitioner) -> Partitioner:
        """Pin a partitioner unless one is pinned; return the one that is."""
        if topic not in self.pinned:
            self.pinned[topic] = self._write(topic, partitioner)
            extra = {"topic": topic, "partitioner": self.pinned[topic].value}
            if self.pinned[topic] is Partitioner.OWN:
                logger.warning(
                    "the keys of an input are placed by neither murmur2 nor CRC32: its producers must agree, "
                    "and the job cannot be rescaled",
                    extra=extra,
                )
            else:
                logger.info("the partitioner of an input is known", extra=extra)
        return self.pinned[topic]

    def _write(self, topic: str, partitioner: Partitioner) -> Partitioner:
        try:
            if self._job_directory.address.embedded:
                return pin(self._metadata, topic, partitioner)
            # not the worker's own log, which has the answers to its tasks' sends
            log = self._job_directory.open_log(group=self.job.name)
            try:
                return pin(log.open_metadata(self.job.name), topic, partitioner)
            finally:
                log.close()
        except FrameworkError as error:
            logger.warning(
                "the partitioner of an input cannot be pinned: the next start works it out again",
                extra={"topic": topic, "partitioner": partitioner.value, "error": str(error)},
            )
            return partitioner


class KeyCheck:
    """Checks the external inputs of one task, a batch at a time, before it is processed."""

    def __init__(self, keys: JobKeys, stage: StageGraph, inputs: Sequence[TopicPartition]) -> None:
        """``inputs``: the partitions that the task reads. Raises Halted: they are partitioned differently."""
        self._keys, self._stage, self._inputs = keys, stage, inputs
        self._placing = {topic.name: placing for topic in stage.topics_read() if (placing := placing_of(topic.key))}
        self._looks: dict[TopicPartition, Look] = {}
        self._compare()
        for partition in inputs:
            self._choose(partition)

    def __call__(self, partition: TopicPartition, offsets: Sequence[int], keys: Keys) -> None:
        """Take the keys of a batch of records. Raises Halted for one that belongs in another partition."""
        look = self._looks.get(partition)
        if look is not None:
            look(offsets, keys)

    def _choose(self, partition: TopicPartition) -> None:
        """Choose how the keys of an input are looked at from now on."""
        pinned, grown = self._keys.pinned.get(partition.topic), self._keys.rescaled(self._stage, partition.topic)
        if grown is not None and pinned is not Partitioner.OWN:
            placed = pinned or Partitioner.MURMUR2  # by which the rescale has placed the state
            self._looks[partition] = self._each(partition, placed, grown.ends.get(partition, 0))
        elif pinned is None:
            self._looks[partition] = self._recognizing(partition)
        elif pinned is Partitioner.OWN:
            self._looks.pop(partition, None)
        elif partition.topic in self._placing:  # of others that must know what places a key
            self._looks[partition] = self._each(partition, pinned, 0)
        else:
            self._looks[partition] = self._sampling(partition, pinned)

    # --- three ways to look ---

    def _task_of(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the number of the task that reads a partition, and of how many: where keys belong, too (A2f)."""
        return partition.partition % self._stage.partitions, self._stage.partitions

    def _recognizing(self, partition: TopicPartition) -> Look:
        recognizer, placing = Recognizer(*self._task_of(partition)), self._placing.get(partition.topic, _whole)

        def look(offsets: Sequence[int], keys: Keys) -> None:
            if partition.topic in self._keys.pinned:  # by another task here
                self._choose(partition)
                self(partition, offsets, keys)
                return
            for key, offset in zip(keys[:UNPINNED_KEYS_MAX], offsets, strict=False):
                if not key:
                    continue
                at = KeyAt(placing(key), offset)
                if partition.topic in self._placing and self._elsewhere(partition, at):
                    return
                if (found := recognizer.see(*at)) is not None:
                    self._recognized(partition, found)
                    self(partition, offsets, keys)
                    return

        return look

    def _sampling(self, partition: TopicPartition, partitioner: Partitioner) -> Look:
        partition_by = partition_of if partitioner is Partitioner.MURMUR2 else crc32_partition_of
        (number, partitions), turn = self._task_of(partition), 0

        def look(offsets: Sequence[int], keys: Keys) -> None:
            nonlocal turn
            turn += 1  # where the sample begins moves on, or records that alternate would hide
            step = min(SAMPLE_STEP, len(keys) // AT_LEAST) or 1
            for key in keys[turn % step :: step]:
                if key and partition_by(key, partitions) != number:
                    self._misplaced(partition, partitioner, KeyAt(key, offsets[keys.index(key)]))
                    return

        return look

    def _each(self, partition: TopicPartition, partitioner: Partitioner, since: int) -> Look:
        partition_by = partition_of if partitioner is Partitioner.MURMUR2 else crc32_partition_of
        (number, partitions), placing = self._task_of(partition), self._placing.get(partition.topic, _whole)
        known: set[bytes | None] = {None, b""}

        def look(offsets: Sequence[int], keys: Keys) -> None:
            if offsets[0] < since:
                keys = keys[bisect_left(offsets, since) :]
            fresh = set(keys)
            fresh -= known
            for key in fresh:
                if key and partition_by(placing(key), partitions) != number:
                    at = next(i for i, (k, o) in enumerate(zip(keys, offsets[-len(keys) :], strict=True)) if k == key)
                    self._misplaced(partition, partitioner, KeyAt(placing(key), offsets[-len(keys) :][at]))
                    return
            if len(known) > KNOWN_MAX:
                known.clear()
                known.update((None, b""))
            known.update(fresh)

        return look

    # --- what is found ---

    def _recognized(self, partition: TopicPartition, found: Recognized) -> None:
        job = self._keys.job
        if found.two:
            self._complain(partition, two_producers(job.name, partition, found))
            return
        pinned = self._keys.pin(partition.topic, found.partitioner)
        other = next((at for kind, at in found.examples.items() if kind is not pinned), None)
        self._choose(partition)
        if other is not None and pinned is not Partitioner.OWN:
            self._misplaced(partition, pinned, other)
        self._compare()

    def _elsewhere(self, partition: TopicPartition, at: KeyAt) -> bool:
        """Complain, and return True, if no partitioner puts the part of a key that places it here."""
        number, partitions = self._task_of(partition)
        if number in {partition_of(at.key, partitions), crc32_partition_of(at.key, partitions)}:
            return False
        self._complain(partition, placed_otherwise(partition, self._keys.job.count_of(partition.topic), at))
        return True

    def _misplaced(self, partition: TopicPartition, partitioner: Partitioner, at: KeyAt) -> None:
        grown = self._keys.rescaled(self._stage, partition.topic)
        before = None if grown is None else grown.before
        count = self._keys.job.count_of(partition.topic)
        is_part = partition.topic in self._placing
        self._complain(partition, misplaced(partition, count, partitioner, at, before=before, is_part=is_part))

    def _compare(self) -> None:
        """Refuse inputs that bring the same key to different tasks; what comes from a stage is placed by murmur2."""
        known = {at.topic: self._keys.pinned[at.topic] for at in self._inputs if at.topic in self._keys.pinned}
        streams = self._keys.job.topology().streams_into(self._stage.ordinal)
        known |= {stream.user_topic: Partitioner.MURMUR2 for stream in streams if not stream.broadcast}
        if len(set(known.values())) > 1:
            self._complain(None, differing_inputs(self._stage.name, known))

    def _complain(self, partition: TopicPartition | None, text: str) -> None:
        """Halt; or, if that is the setting, say it once for each input."""
        if self._keys.halts:
            raise Halted(text, stage=self._stage.name, partition=partition, code=HaltCode.MISPLACED_KEYS)
        logger.warning("state is split, and misplaced_keys is warn", extra={"error": text})
        if partition is not None:
            self._looks.pop(partition, None)


def _whole(key: bytes) -> bytes:
    return key
