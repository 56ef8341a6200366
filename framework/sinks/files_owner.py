"""The owner of a task's files in a directory: a hidden file there names it and keeps a second job out (S2)."""

import os
from contextlib import suppress
from pathlib import Path

from grete.api.sinks.sink import Owner
from grete.errors import Halted
from grete.halts import HaltCode


class FilesOwner:
    """The owner's file of one task in a directory. Its methods raise OSError, which the sink explains."""

    def __init__(self, directory: Path, owner: Owner) -> None:
        self._directory, self._owner = directory, owner
        self._path = directory / f".part-{owner.task}-owner"
        self._ours = f"{owner.job} {owner.nonce}"

    def theirs(self) -> str | None:
        """Return the owner in the owner's file; None: the directory is not claimed."""
        with suppress(FileNotFoundError):
            return self._path.read_text()
        return None

    def is_ours(self) -> bool:
        """Tell whether we have claimed it, and still have. Raises Halted if another job has it."""
        theirs = self.theirs()
        if theirs is not None and theirs.partition(" ")[0] != self._owner.job:
            raise self.refused()
        return theirs == self._ours

    def claim(self, draft: Path) -> None:
        """Write the owner's file, by way of ``draft``, instead of one of an earlier life of this job.

        Raises Halted if another job was faster.
        """
        draft.write_text(self._ours)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        if self.theirs() is not None:
            draft.rename(self._path)
            return
        try:
            os.link(draft, self._path)  # never replaces the claim of a second job that came first
        except FileExistsError:
            if not self.is_ours():
                raise self.refused() from None
        finally:
            draft.unlink(missing_ok=True)

    def refused(self, found: str = "") -> Halted:
        """Return the error: the files are another's. ``found``: which ones, if the directory is not claimed."""
        job, task = self._owner.job, self._owner.task
        theirs = self.theirs()
        name = "" if theirs is None else theirs.partition(" ")[0]
        whose = f"an earlier life of job {job!r}, or another job of its name" if name == job else f"job {name!r}"
        if theirs is None:
            whose = f"another job, or an earlier life of job {job!r} ({found})"
        return Halted(
            f"files {self._directory}: the files of task {task} there belong to {whose}: two jobs must not write "
            f"files of one task to one directory, or some would be missing. Declare another directory for {job!r}; or, "
            f"if nothing writes those files any more, move all of .part-{task}-* and part-{task}-* to another "
            "directory, and start again",
            task=task,
            code=HaltCode.SINK_OF_ANOTHER_JOB,
        )
