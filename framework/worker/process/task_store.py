"""Opening the store of a task at a worker's start: as it is, or filled by files that are worth the changelog."""

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.execution.build import store_names
from grete.execution.prebuilt.snapshot_install import SnapshotTaker
from grete.execution.prebuilt.sst_install import take_prebuilt
from grete.job.directory import JobDirectory
from grete.ports import LogReader
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.open import open_store
from grete.stores.rocksdb.store import RocksStore


def open_task_store(
    job: Job, graph: StageGraph, partition: int, job_directory: JobDirectory, log: LogReader, memory: RocksMemory
) -> tuple[RocksStore, SnapshotTaker]:
    """Return the open store of task (graph, partition), and what takes a snapshot if the changelog does not suffice.

    A backfill may have left files for it in the job's directory. Raises TransientError: it is in use, the disk is full,
    or the log is away.
    """
    wiring, stores = wire(job.topology(), graph.ordinal, partition), store_names(graph)
    directory = job_directory.state(wiring.name)
    store = open_store(directory, stores, memory, graph.dropped_ids.values())
    take_prebuilt(job_directory.prebuilt(wiring.name), store, stores, log, wiring.changelog)
    return store, SnapshotTaker(job.name, wiring, log, stores)
