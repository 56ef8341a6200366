"""Files as a sink: the outputs of one checkpoint of one task become one file, however often they are applied (S2)."""

import filecmp
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from grete.api.serdes.serde import encode_error, functions_of
from grete.api.sinks.files import Files
from grete.api.sinks.sink import Entry, Owner, Released
from grete.errors import SerdeError, TransientError
from grete.sinks.files_owner import FilesOwner
from grete.sinks.released_files import ReleasedFiles, sync_directory


def line_encoder(target: Files[object]) -> Callable[[object], bytes]:
    """Return value → bytes of its line. It raises SerdeError."""
    encode, where = functions_of(target.value)[0], f"output to files {target.directory}: "

    def encoded(value: object) -> bytes:
        try:
            raw = encode(value)
        except Exception as error:
            raise encode_error(target.value, value, error, where) from error
        if b"\n" in raw:
            raise SerdeError(f"{where}a value of serde {target.value.name} has a newline in it: {raw[:80]!r}: use json")
        return raw

    return encoded


class FilesSink:
    """Writes ``part-{stage}-{partition}-{checkpoint}.jsonl``; a file of that name was made from the same entries.

    For that the directory is claimed with the first file. One without a claim may hold files of a release that
    claimed none: there a file of that name counts only if it has the same bytes. Also an EarlySink, whose files are
    those of ReleasedFiles.
    """

    def __init__(self, directory: str) -> None:
        self.name = f"files {directory}"
        self._directory = Path(directory)
        self._stem = ""
        self._target = self._directory
        self._draft: Path | None = None
        self._file: BinaryIO | None = None
        self._released: ReleasedFiles | None = None
        self._owner: FilesOwner | None = None

    def open(self, owner: Owner) -> int | None:
        """Make the directory, and delete what a crash has left half written."""
        self.close()
        self._stem = f"part-{owner.task}-"
        self._owner = FilesOwner(self._directory, owner)
        self._released = ReleasedFiles(self._directory, owner, self._owner)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            # Also that of an instance that sleeps: its rename will fail, and then it finds the file.
            ours = re.compile(rf"\.{re.escape(self._stem)}\d+\.[0-9a-f]+\.draft")
            for leftover in self._directory.iterdir():
                if ours.fullmatch(leftover.name):
                    leftover.unlink(missing_ok=True)
        except OSError as error:
            raise self._trouble(error) from error
        return None

    def begin(self, checkpoint_id: int) -> bool:
        """Begin a draft: hidden, and without the suffix, so that a listing shows whole files only."""
        self._target = self._directory / f"{self._stem}{checkpoint_id}.jsonl"
        try:
            if self._claimed(checkpoint_id) and self._target.exists():
                sync_directory(self._directory)  # a crash may have come before the sync
                return False
            self._draft = self._new_draft()
            self._file = self._draft.open("xb")
        except OSError as error:
            raise self._trouble(error) from error
        return True

    def write(self, entries: Sequence[Entry]) -> None:
        """Append lines to the draft."""
        assert self._file is not None
        try:
            self._file.writelines(raw + b"\n" for _, raw in entries)
        except OSError as error:
            raise self._trouble(error) from error

    def commit(self) -> None:
        """Give the draft its name."""
        assert self._file is not None
        assert self._draft is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._compare()
            self._draft.rename(self._target)
            sync_directory(self._directory)
        except OSError as error:
            raise self._trouble(error) from error
        self._file = self._draft = None

    def last_released(self, generation: int) -> Released:
        """Take the directory over for a generation; return how far its files go."""
        assert self._released is not None
        try:
            return self._released.last_released(generation)
        except OSError as error:
            raise self._trouble(error) from error

    def release(self, after: int, upto: Released, entries: Sequence[Entry]) -> None:
        """Make a file of outputs that no commit holds yet."""
        assert self._released is not None
        try:
            self._released.release(after, upto, entries)
        except OSError as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        """Forget the draft."""
        if self._file is not None and self._draft is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._draft.unlink(missing_ok=True)
        self._file = self._draft = None

    def _new_draft(self) -> Path:
        """Return a name of our own: an instance that wakes up must not write into ours."""
        return self._target.with_name(f".{self._target.stem}.{os.urandom(8).hex()}.draft")

    def _claimed(self, checkpoint_id: int) -> bool:
        """Claim the directory before the first file; False if the file is there, without a claim. Raises Halted."""
        assert self._owner is not None
        if self._owner.is_ours():
            return True
        ours = re.compile(rf"{re.escape(self._stem)}(\d+|seq-.*)\.jsonl")
        found = [match[1] for path in self._directory.iterdir() if (match := ours.fullmatch(path.name))]
        if found and self._owner.theirs() is not None:
            raise self._owner.refused()
        if str(checkpoint_id) in found:
            return False
        if ahead := [number for number in found if number.isdecimal() and int(number) > checkpoint_id]:
            raise self._owner.refused(f"checkpoint {ahead[0]} is there, and ours is {checkpoint_id}")
        self._owner.claim(self._new_draft())
        return True

    def _compare(self) -> None:
        """Take a file for ours without a claim if it has our bytes, and claim the directory. Raises Halted."""
        assert self._owner is not None
        assert self._draft is not None
        if self._owner.is_ours():
            return
        if self._owner.theirs() is not None or not filecmp.cmp(self._draft, self._target, shallow=False):
            raise self._owner.refused(f"{self._target.name} has other lines")
        self._owner.claim(self._new_draft())

    def _trouble(self, error: OSError) -> TransientError:
        return TransientError(f"cannot write {self._target}: {error}: free the disk or fix the directory's permissions")
