"""What a job pins in its metadata: guarantee, modes, the partitions of a rescale."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.api.job import Job
from framework.job.directory import _parsed, check_guarantee
from framework.job.key_metadata import rescale_note, rescaled
from framework.logs.address import open_notes, read_notes
from framework.ports import Log, LogReader
from framework.settings import Settings, with_texts
from protocol.ids import TopicPartition

if TYPE_CHECKING:
    from framework.logs.address import Notes


_GUARANTEE = "guarantee"  # the note that pins it, and the modes behind it if they are not the usual one


def pin_guarantee(notes: "Notes", job: str, settings: Settings, modes: str = "aligned") -> None:
    """Pin guarantee and modes at the first run: commits mean something else under others. Raises ConfigError then."""
    text = check_guarantee(notes, job, settings, modes)
    if text is not None:
        notes.produce_with_meta([], {_GUARANTEE: text.encode()})


def pinned_settings(job: Job, log: LogReader, settings: Settings) -> Settings:
    """Return the settings with the guarantee that the job was made with, if it has run."""
    pinned = read_notes(log, job.name).meta_get(_GUARANTEE)
    if pinned is None:
        return settings
    guarantee, _, release = _parsed(pinned.decode())
    return with_texts(settings, {"guarantee": guarantee, "release": release})


def note_rescale(log: Log, job: Job, before: int, ends: Mapping[TopicPartition, int]) -> None:
    """Note before a rescale that ``job`` gets its partitions while its inputs end there: see ``placed_from``."""
    open_notes(log, job.name).produce_with_meta([], rescale_note(job.partitions, before, ends))


def placed_from(log: LogReader, job: Job) -> dict[TopicPartition, int]:
    """Return, of a job that was rescaled, from which offsets on records stand where their keys belong now."""
    found = rescaled(read_notes(log, job.name), job)
    return {} if found is None else found.ends
