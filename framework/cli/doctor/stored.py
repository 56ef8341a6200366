"""The stored state of a job: whether a start can read the end of each changelog, and a new machine the snapshots."""

from collections.abc import Iterator

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.core.graph.task_topology import TaskWiring
from grete.errors import FrameworkError, StoreCorrupted
from grete.ports import JobLogReader
from grete.state.pins.graph_pinning import commits_of
from grete.state.read.checkpoints.commits import CommittedAt, all_wirings
from grete.stores.snapshot_folder import SnapshotFolder

_NAMED_MAX = 3  # tasks of one finding


def look_at_changelogs(report: Report, job: Job, log: JobLogReader) -> Iterator[tuple[TaskWiring, CommittedAt]]:
    """Note what keeps a task from its start; yield the others that have committed, with their last commits."""
    well = 0
    try:
        for wiring, found in commits_of(job, log):
            if isinstance(found, FrameworkError):
                report.failed("changelog", wiring.name, found)
            else:
                well += 1
                yield wiring, found
    except FrameworkError as error:
        report.failed("changelog", job.name, error)
        return
    told = f"the last commits of {well} tasks can be read; grete changelog verify reads all"
    report.ok("changelog", job.name, told if well else "nothing is committed yet")


def look_at_snapshots(report: Report, job: Job, url: str) -> None:
    """Read the newest manifest of each task below ``url``, the setting snapshot_url. Raises ConfigError."""
    folder, tasks = SnapshotFolder(url, job.name), [wiring.name for wiring in all_wirings(job)]
    found, without = 0, []
    for task in tasks:
        try:
            names = folder.manifests(task)
            if not names:
                without.append(task)
            else:
                lacking = folder.lacking(task, folder.manifest(task, names[0]))
                if lacking:
                    raise StoreCorrupted(f"{len(lacking)} of its files are missing or cut, as files/{lacking[0]}")
                found += 1
        except StoreCorrupted as error:
            remedy = "run `grete snapshot`: workers take an older one meanwhile, or the changelog"
            report.warn("snapshot", folder.place(task), str(error), remedy)
        except FrameworkError as error:  # each task's folder would say the same
            remedy = "mend snapshot_url, or the rights to read there; without snapshots: leave it empty"
            report.fail("snapshots", url, str(error), remedy)
            return
    value = f"{found} of {len(tasks)} tasks have one that is whole"
    if not without:
        report.ok("snapshots", url, value)
        return
    named = ", ".join(without[:_NAMED_MAX]) + (", …" if len(without) > _NAMED_MAX else "")
    remedy = f"run `grete snapshot`: without one a new machine reads the whole changelog of {named}"
    report.warn("snapshots", url, value, remedy)
