"""The folder of snapshots: whether it answers, and whether each task has one that a new machine could take."""

from grete.api.jobs.job import Job
from grete.cli.doctor.report import Report
from grete.errors import FrameworkError, StoreCorrupted
from grete.state.read.checkpoints.commits import all_wirings
from grete.stores.snapshot_folder import SnapshotFolder

_NAMED_MAX = 3  # tasks of one finding


def look(report: Report, job: Job, url: str) -> None:
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
