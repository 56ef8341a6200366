"""Files that a deterministic task's outputs become before their checkpoint is committed: one file a release (D5)."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import ENOENT
from pathlib import Path

from grete.api.sinks.sink import Entry, Owner, Released
from grete.errors import Fenced, Halted
from grete.halts import HaltCode
from grete.sinks.files_owner import FilesOwner

_DIGITS = 15  # so that names in their order are releases in their order
_GONE = ".gone"  # of a directory of drafts that is being deleted


class ReleasedFiles:
    """The releases of one task in a directory. Its methods raise OSError, which the sink explains.

    A file's name says which numbers it has, up to which logical time, and the digest: the last one is the account. A
    draft is linked to its name from a hidden directory of its generation. A successor takes the directories of lower
    generations away before it looks how far the files go. So a link by an instance that had been asleep finds no draft,
    and a draft of it no directory: nothing can become visible behind the successor's look.
    """

    def __init__(self, directory: Path, owner: Owner, claims: FilesOwner) -> None:
        self._directory = directory
        self._claims = claims
        self._owner = owner
        self._hidden = f".part-{owner.task}-"
        self._stem = f"part-{owner.task}-seq-"
        self._drafts = directory
        self._last = 0

    def last_released(self, generation: int) -> Released:
        """Take over; return how far the files go: a job that starts afresh counts from 1. Raises Halted, Fenced."""
        self._claims.is_ours()  # before the directories of another job are taken away
        self._take_over(generation)
        found = self._newest()
        if not self._claims.is_ours():
            if found.seq and self._claims.theirs() is not None:
                raise self._claims.refused()
            self._claims.claim(self._drafts / "draft")
        sync_directory(self._directory)  # a crash may have come between a link and its sync
        self._last = found.seq
        return found

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        """Write a file, and give it its name: a link never replaces another file."""
        if after < self._last:
            raise Halted(
                f"files {self._directory}: outputs of {self._owner.task} were to be released from {after + 1} on, and "
                f"are there up to {self._last}: did anything but Grete write files there? Take these away and start "
                "again",
                code=HaltCode.SINK_CHANGED,
            )
        first, draft = after + 1, self._drafts / "draft"
        name = f"{self._stem}{first:0{_DIGITS}}-{upto.seq:0{_DIGITS}}-{upto.t}-{upto.digest:08x}.jsonl"
        if not self._claims.is_ours():
            raise FileNotFoundError(ENOENT, "claimed by another life of the job")  # whose the files are is asked again
        with draft.open("xb") as file:
            file.writelines(raw + b"\n" for _, raw in entries)
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, self._directory / name)
        draft.unlink()
        sync_directory(self._directory)
        self._last = upto.seq

    def _take_over(self, generation: int) -> None:
        """Make our directory for drafts, and take away those of lower generations: first ours, or two could pass."""
        self._drafts = self._directory / f"{self._hidden}g{generation}"
        self._drafts.mkdir(exist_ok=True)
        (self._drafts / "draft").unlink(missing_ok=True)
        for number, path in list(self._generations()):
            if number > generation:
                with suppress(OSError):
                    self._drafts.rmdir()
                raise Fenced(
                    f"files {self._directory}: generation {number} of {self._owner.task} writes there now, this is "
                    f"{generation}",
                    task=self._owner.task,
                )
            if number < generation:
                gone = path.with_suffix(_GONE)
                if path != gone:
                    with suppress(FileNotFoundError):  # its owner has found us, and taken it away itself
                        path.rename(gone)  # at once: a draft in it has no path any more
                shutil.rmtree(gone, ignore_errors=True)

    def _generations(self) -> Iterator[tuple[int, Path]]:
        ours = re.compile(rf"{re.escape(self._hidden)}g(\d+)({re.escape(_GONE)})?")
        for path in self._directory.iterdir():
            if found := ours.fullmatch(path.name):
                yield int(found[1]), path

    def _newest(self) -> Released:
        """Return the position that the files reach."""
        ours = re.compile(rf"{re.escape(self._stem)}\d{{{_DIGITS},}}-(\d+)-(\d+)-([0-9a-f]+)\.jsonl")
        found = [match for path in self._directory.iterdir() if (match := ours.fullmatch(path.name))]
        releases = [Released(int(each[1]), int(each[2]), int(each[3], 16)) for each in found]
        return max(releases, default=Released(0, 0, 0))


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
