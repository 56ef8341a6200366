"""State inside of an installed library. A restart begins it again."""

import mimetypes

from grete import Record
from tests.verification.nondeterminism.lines import Lines, one_stage


class LibraryState(Lines):
    def answer(self, record: Record[str, str]) -> str:
        known = len(mimetypes.types_map)
        mimetypes.add_type("text/x-line", f".{record.offset}x")
        return str(known)


job = one_stage(LibraryState)
