"""Whether a job's directory is a copy beside its original: on an embedded log both would go on as one job."""

import json
from pathlib import Path

from grete.api.jobs.job import Job
from grete.api.topics.topic import Topic, TopicPattern
from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError
from grete.ports import JobMetadata, MetadataReader

PLACE = "place"  # the key in the job metadata: path, device and number of the directory


def refuse_copy(job: Job, metadata: MetadataReader, directory: Path) -> None:
    """Raise ConfigError if a job that writes outside of its log stands in a copy of a directory that is there, too.

    What it has written counts in both, so each would take files or rows of the other one for its own. A directory that
    was moved, or brought back from a backup, has no original beside it.
    """
    raw, outside = metadata.meta_get(PLACE), _outside(job)
    if raw is None or not outside:
        return
    with reading(PLACE):
        path, *before = json.loads(raw)
        original = Path(path)
    if before != _number(directory) and before == _number(original) and (original / "log.db").exists():
        raise ConfigError(
            f"{directory} is a copy of {original}, where job {job.name!r} has run: both would go on writing to "
            f"{outside[0]!r} as one job. Delete the one that is not to go on; or give the copy's job another "
            "name, and outputs of its own: grete fork"
        )


def note_place(job: Job, metadata: JobMetadata, directory: Path) -> None:
    """Note where the directory of a job is that writes outside of its log."""
    raw = json.dumps([str(directory.resolve()), *_number(directory)]).encode()
    if _outside(job) and metadata.meta_get(PLACE) != raw:
        metadata.produce_with_meta([], {PLACE: raw})


def _outside(job: Job) -> list[object]:
    """Return the targets of a job beside topics."""
    targets = [each.target for stage in job.stages for each in stage.outputs.values()]
    return [each for each in targets if not isinstance(each, Topic | TopicPattern)]


def _number(directory: Path) -> list[int]:
    """Return device and number; nothing if it is not there."""
    try:
        found = directory.stat()
    except OSError:
        return []
    return [found.st_dev, found.st_ino]
