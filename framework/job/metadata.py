"""The pins in a job's metadata: processing guarantee, modes, the partitions of a rescale."""

from collections.abc import Mapping

from grete.api.jobs.job import Job
from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError
from grete.job.key_metadata import rescale_entry, rescaled
from grete.ports import JobLog, JobLogReader, MetadataReader
from grete.protocol.ids import TopicPartition
from grete.settings import Settings, with_texts

_SEQUENCED = "read-back"  # as it is pinned: logs of earlier builds say so
# as they are pinned: until release 0.3 the guarantee none was called at-most-once
_PINNED = {"none": "at-most-once", "at-most-once": "at-most-once-aligned"}
_GUARANTEES = {pinned: guarantee for guarantee, pinned in _PINNED.items()}
_GUARANTEE = "guarantee"  # the entry that pins it, and the modes behind it if they are not the usual one


def guarantee_entry(metadata: MetadataReader, job: str, settings: Settings, modes: str) -> dict[str, bytes]:
    """Pin guarantee and modes at the first run: commits mean something else under others. Raises ConfigError then.

    Return what is to be written, empty if it is there.
    """
    text = check_guarantee(metadata, job, settings, modes)
    return {} if text is None else {_GUARANTEE: text.encode()}


def has_pins(metadata: MetadataReader) -> bool:
    """Tell whether a job has begun by this metadata: each release has pinned the guarantee at the first start."""
    return metadata.meta_get(_GUARANTEE) is not None


def check_guarantee(metadata: MetadataReader, job: str, settings: Settings, modes: str) -> str | None:
    """Return guarantee and modes if they are to be pinned: at the first run, or when stages were added last.

    Raises ConfigError: the job has run with others.
    """
    if "deterministic" in modes and settings.processing_guarantee != "exactly-once":
        raise ConfigError(
            f"job {job!r} has deterministic stages, which are exactly once: drop the setting processing_guarantee = "
            f"{settings.processing_guarantee}, or the mode",
            setting="processing_guarantee",
        )
    described = modes
    if "deterministic" in modes and settings.output_delivery == "sequenced":
        described = f"{modes}, {_SEQUENCED}"
    ours_pinned = _PINNED.get(settings.processing_guarantee, settings.processing_guarantee)
    text = ours_pinned if described == "aligned" else f"{ours_pinned} ({described})"
    raw = metadata.meta_get(_GUARANTEE)
    if raw is None:
        return text
    guarantee, before, delivery = _parsed(pinned := _text(raw))
    both = all("deterministic" in each for each in (before, modes))
    stages, ours = before.split(","), modes.split(",")
    same = all(one == other for one, other in zip(stages, ours, strict=False))
    if guarantee != settings.processing_guarantee or not same or (both and delivery != settings.output_delivery):
        raise ConfigError(
            f"the log of job {job!r} was made with guarantee {_told(pinned)}, not {_told(text)}: put that back, or "
            f"choose another --directory; on Kafka, another name for the job{_renamed(guarantee, settings)}"
        )
    return text if len(ours) > len(stages) else None


def _told(pinned: str) -> str:
    """Return a pinned text with the word of the setting."""
    return _GUARANTEES.get(pinned, pinned)


def _renamed(pinned: str, settings: Settings) -> str:
    """Return the hint for a job whose guarantee has another name since release 0.4."""
    is_old = pinned == "none" and settings.processing_guarantee == "at-most-once"
    return ". Until release 0.3 none was called at-most-once: write processing_guarantee=none" if is_old else ""


def _parsed(pinned: str) -> tuple[str, str, str]:
    """Return guarantee, modes and output delivery that a pinned text says."""
    guarantee, _, rest = pinned.partition(" ")
    modes, _, delivery = rest.strip("()").partition(", ")
    delivery = "sequenced" if delivery == _SEQUENCED else "transactional"
    return _GUARANTEES.get(guarantee, guarantee), modes or "aligned", delivery


def pinned_settings(job: Job, log: JobLogReader, settings: Settings) -> Settings:
    """Return the settings with the processing guarantee that the job was made with, if it has run."""
    pinned = log.read_metadata(job.name).meta_get(_GUARANTEE)
    if pinned is None:
        return settings
    guarantee, _, delivery = _parsed(_text(pinned))
    with reading(_GUARANTEE):
        return with_texts(settings, {"processing_guarantee": guarantee, "output_delivery": delivery})


def _text(raw: bytes) -> str:
    with reading(_GUARANTEE):
        return raw.decode()


def pin_rescale(
    log: JobLog, job: Job, before: int, ends: Mapping[TopicPartition, int], stage: str | None = None
) -> None:
    """Write before a rescale that ``job`` gets its partitions while its inputs end there: see ``placed_from``."""
    partitions = job.partitions if stage is None else job.stage(stage).partitions
    log.open_metadata(job.name).produce_with_meta([], rescale_entry(partitions, before, ends, stage))


def placed_from(log: JobLogReader, job: Job) -> dict[TopicPartition, int]:
    """Return, of a job that was rescaled, the offsets from which on records are in their keys' present partitions."""
    metadata, placed = log.read_metadata(job.name), dict[TopicPartition, int]()
    for stage in job.stages:
        found = rescaled(metadata, job, stage)
        topics = job.topology().externals_of(stage.ordinal)
        placed |= {} if found is None else {p: end for p, end in found.ends.items() if p.topic in topics}
    return placed
