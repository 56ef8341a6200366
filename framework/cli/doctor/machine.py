"""This machine: disk, limits of the process, memory, and the versions of what a worker loads."""

import os
import platform
import shutil
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.settings import GiB, MiB, Settings
from grete.worker.logs.open_files import allowed

FREE_BYTES_MIN = 1 * GiB  # RocksDB's compaction and a changelog's rewrite need room beside what is there
INODES_MIN = 10_000  # a store has some dozens of files for each gigabyte
FILES_OF_A_STORE = 64 + 16  # set_max_open_files in framework/stores/rocksdb/memory_use.py, and its logs
FILES_BESIDE = 128  # sockets to brokers, libraries, the log's file, pipes
PYTHON_BYTES = 150 * MiB  # of a worker without any state
TESTED = ((3, 11), (3, 12), (3, 13))  # pyproject.toml: the versions that all tests ran on
OVER_THE_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "glusterfs", "ceph")
LIBRARIES = ("grete", "confluent-kafka", "rocksdict", "fastavro", "msgspec")
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def look(report: Report, job: Job, directory: Path, settings: Settings, processes: int) -> None:
    """Look at the disk of ``directory``, which need not exist yet, and at what this user's processes may use.

    ``processes``: worker processes that share the partitions.
    """
    _disk(report, directory)
    _files(report, job, processes)
    _memory(report, job, settings, processes)
    _versions(report)


def _disk(report: Report, directory: Path) -> None:
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    state, free = size_of(directory), shutil.disk_usage(there).free
    least = max(FREE_BYTES_MIN, state)
    report.check(
        "free disk space",
        str(directory),
        f"{free:,} bytes are free, the job takes {state:,}",
        f"make room: at least {least:,} bytes, as much as the job takes and never less than 1 GiB",
        well=free >= least,
    )
    inodes = os.statvfs(there)
    report.check(
        "free inodes",
        str(directory),
        f"{inodes.f_favail:,}" if inodes.f_files else "this file system has no limit",
        "delete small files, or choose another file system: a full one ends the workers",
        well=not inodes.f_files or inodes.f_favail >= INODES_MIN,
    )
    kind = file_system(there)
    report.check(
        "file system",
        str(directory),
        kind,
        "choose a --directory on a local disk: SQLite's and RocksDB's locks do not hold over a network",
        well=kind not in OVER_THE_NETWORK,
    )
    report.check(
        "rights",
        str(directory),
        f"{there}: owner {_owner(there)}, mode {there.stat().st_mode & 0o777:o}",
        "give this user the right to read and write it, or choose another --directory",
        well=os.access(there, os.R_OK | os.W_OK | os.X_OK),
    )
    report.ok("fsync", str(directory), "not measured: that would write")


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:  # of a container, perhaps: a number without a name
        return str(path.stat().st_uid)


def size_of(directory: Path) -> int:
    """Return the bytes of the files below a directory; 0 if it is not there."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def file_system(path: Path) -> str:
    """Return the kind of file system of a path, as the kernel calls it; "unknown" where it does not say."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "unknown"
    found = ("", "unknown")
    for line in mounts.read_text().splitlines():
        _, place, kind, *_ = line.split()
        place = place.encode().decode("unicode_escape")
        if path.absolute().is_relative_to(place) and len(place) >= len(found[0]):
            found = place, kind
    return found[1]


def tasks_of_a_worker(job: Job, processes: int) -> int:
    """Return the number of tasks of the worker with the most of them."""
    return sum(-(-stage.partitions // processes) for stage in job.stages)


def _files(report: Report, job: Job, processes: int) -> None:
    limit, tasks = allowed(), tasks_of_a_worker(job, processes)
    needed = FILES_BESIDE + FILES_OF_A_STORE * tasks
    report.check(
        "open files",
        "this user",
        f"a process may have {limit:,}, a worker of {tasks} tasks may need {needed:,}",
        f"raise it: ulimit -n {max(needed, 4096)}, or LimitNOFILE= of the unit; or let more processes share the tasks",
        well=limit >= needed,
    )


def _memory(report: Report, job: Job, settings: Settings, processes: int) -> None:
    tasks, workers = tasks_of_a_worker(job, processes), min(processes, job.workers)
    of_a_task = settings.read_cache_bytes_max + settings.early_memory_bytes_max + settings.unacked_bytes_max
    usual = workers * (PYTHON_BYTES + settings.rocksdb_bytes + tasks * of_a_task)
    limit = memory_limit()
    value = f"{workers} workers may take {usual:,} bytes, the limit is {limit:,}; uncommitted state comes on top"
    if usual <= limit:
        report.ok("memory", "this machine", value)
        return
    report.warn(
        "memory",
        "this machine",
        value,
        "lower rocksdb_bytes, read_cache_bytes_max or early_memory_bytes_max, or run fewer workers on a machine",
    )


def memory_limit() -> int:
    """Return the bytes of memory for the processes here: the cgroup's limit, at most the machine's memory."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    texts = [Path(name).read_text().strip() for name in _CGROUPS if Path(name).exists()]
    return min([machine, *(int(text) for text in texts if text.isdecimal())])


def _versions(report: Report) -> None:
    here = platform.python_version()
    if sys.version_info[:2] in TESTED:
        report.ok("Python", "this machine", here)
    else:
        report.warn("Python", "this machine", here, "the tests ran on 3.11, 3.12 and 3.13: take one of them")
    report.check(
        "SQLite",
        "this machine",
        sqlite3.sqlite_version,
        "take a Python with SQLite 3.37 or newer",
        well=sqlite3.sqlite_version_info >= (3, 37),
    )
    report.ok("libraries", "this machine", ", ".join(f"{name} {version(name)}" for name in LIBRARIES))
