"""A job of ``parity`` with a log of its own, run by real workers; and what it has made: state and outputs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grete.execution.build import store_names
from grete.execution.timing.reserved_stores import META, OUTBOX, STREAM_TIME
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.snapshots import contents, segments, snapshots
from grete.state.read.live_entries import event_time_of
from grete.stores.overlay.expiring_store import horizon
from grete.worker.supervisor.local_job import LocalJob
from tests.support.draining import drain
from tests.support.parity_records import PRICE_PARTITIONS, Fed, records_of
from tests.support.parity_topics import prices

SETTINGS = Settings(checkpoint_interval_ms=250, event_time_idle_ms=600, restarts_max=1)

State = dict[tuple[str, int, int, bytes], bytes]  # stage, partition, store, key → value
Outputs = dict[str, Counter[tuple[int, bytes | None, bytes | None, int]]]  # topic → partition, key, value, timestamp


class ParityJob:
    """The job of a file ``job.py`` in a directory, which has its log and its state, too."""

    def __init__(self, directory: Path, *, log: str = "embedded", suffix: str = "", shift_ms: int = 0) -> None:
        """Open it. ``suffix``: of its topics; ``shift_ms``: its records are later by that."""
        file = directory / "job.py"
        self.suffix, self.shift_ms = suffix, shift_ms
        self.reference, self.job = str(file), load_job(str(file))
        self.directory = JobDirectory(directory / "job", address=LogAddress(log))
        self.log = self.directory.open_log()
        topology = self.job.topology()
        self.read = {topic for stage in self.job.stages for topic in topology.externals_of(stage.ordinal)}

    def make(self, before: Sequence[Fed] = ()) -> None:
        """Make its topics; ``before``: records that are there before the job is."""
        for topic in self.read:
            count = PRICE_PARTITIONS if topic == prices.name else self.job.count_of(topic)
            self.log.create_topic(topic, count, plain=True)
        self.feed(before)
        prepare(self.job, self.log, self.directory, SETTINGS)

    def records(self, found: Sequence[Fed]) -> list[ExternalRecord]:
        """Return those of the job's topics, as the log takes them."""
        read = [record for record in found if f"{record[0]}{self.suffix}" in self.read]
        return records_of(read, self.suffix, self.shift_ms)

    def feed(self, found: Sequence[Fed]) -> None:
        """Append records to the job's topics."""
        self.log.open_metadata(self.job.name).produce_with_meta(self.records(found), {})

    def run(self, *parts: Sequence[Fed]) -> None:
        """Let real workers process what there is, then each part."""
        with LocalJob(self.job, self.reference, self.directory, SETTINGS) as local:
            drain(local)
            for part in parts:
                local.metadata.produce_with_meta(self.records(part), {})
                drain(local)
            local.stop()

    def state(self) -> State:
        """Return the stores of all tasks as their changelogs have them, but for what a task keeps of itself."""
        found: State = {}
        for (stage, partition), snapshot in zip(self.job.tasks(), snapshots(self.log, self.job), strict=True):
            stores = contents(segments(self.log, snapshot), frozenset(store_names(stage)))
            least = horizon(event_time_of(stores[META].get(STREAM_TIME, (None, 0))[0]))
            for store, entries in stores.items():
                for key, (value, _) in entries.items():
                    if value is None or store in (META, OUTBOX):
                        continue
                    if store not in stage.expiring_ids() or value >= least:
                        found[stage.name, partition, store, key] = value
        return found

    def outputs(self) -> Outputs:
        """Return all that the tasks have sent outside."""
        found: Outputs = {}
        for topic in self.job.external_sinks():
            places = [TopicPartition(topic, number) for number in range(self.log.partitions(topic) or 0)]
            found[topic] = Counter(
                (place.partition, row.key, row.value, row.timestamp_ms)
                for place in places
                for row in rows(self.log, place, *self.log.bounds(place))
            )
        return found
