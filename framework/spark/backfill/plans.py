"""Plans for executors, and their reports."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.account.file_rows import FileRows
from grete.spark.format.options import LogSpec
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.write.bulk.bulk_write_attempt import AttemptData, BulkWrite
from grete.stores.rocksdb.sst_snapshot import SstFile


class LogTail(NamedTuple):
    """The part of an external input that is read from the log, after the files: begin <= offset < end."""

    begin: int
    end: int


TaskInput = tuple[int, TopicPartition]  # producer id of a task, the external partition that it reads


class StagePlan(NamedTuple):
    """The plan of a stage: all that an executor needs."""

    job: str  # how the code is found
    stage: int
    settings: Settings
    outside: dict[str, int]  # partition counts of the topics that the job writes
    checkpoint_id: int
    outputs: bool  # wanted: to topics, and in the outbox
    bulk_write: BulkWrite | None  # writes the state to the changelogs
    snapshots: tuple[Snapshot, ...] | None  # compares the state with these, of the stage's tasks
    where: LogSpec
    tails: dict[TaskInput, LogTail]
    files: frozenset[str]  # topics whose history comes from files; their tails follow it
    from_rows: bool  # batches are rows of the one external input; else pieces
    placed: frozenset[str] = frozenset()  # topics whose files have the offsets of the log
    begins: Mapping[TaskInput, int] = {}  # of ``placed`` topics and the log: offsets before it are not of the job
    ends: Mapping[TaskInput, int] = {}  # of ``placed`` topics: what is from there on is not included
    begins_ms: Mapping[str, int] = {}  # of other files: the first record of that time or later begins the history
    tables: Mapping[TopicPartition, int] = {}  # of what is read first: up to there; absent: all of it
    broadcast: Mapping[str, int] = {}  # topics that each task reads whole → how many partitions they have
    is_recorded: bool = True  # the changelogs have all of the order in which deterministic sources took their inputs
    makes_calls: bool = True  # or the results of all calls are recorded
    definition: bytes = b""  # of the job, with the ids of its stores
    sought: Mapping[str, frozenset[bytes]] = {}  # topic → keys of the log that are looked for in its files
    counts_alone: bool = False  # the state is counted, and goes nowhere: of a dry run
    built: str = ""  # the directory for the state as files, beside the changelog; none if empty


class BackfilledTask(msgspec.Struct):
    """The report of one task."""

    task: int
    records: int
    refused: int
    outputs: int  # to topics outside of the job
    letters: int  # dead letters, of these
    failed: int = 0  # records, timers and windows that were dropped by errors="drop"
    keys: int = 0  # of the state
    written: AttemptData | None = None  # the attempt that wrote it to the changelog
    built: str = ""  # where that attempt left the same as files
    files: list[SstFile] = []
    taken: list[FileRows] = []  # from files, of each external partition
    stage: int = 0
