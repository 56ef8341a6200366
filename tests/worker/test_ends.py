"""The reason of a worker's end, which metrics and the page show: it names what a person has to look at."""

from pathlib import Path

import pytest

from grete.errors import ExitCode
from grete.worker import ends
from grete.worker.ends import end_of


@pytest.mark.parametrize(
    ("entry", "free", "reason"),
    [
        ({"kind": "OSError", "error": "[Errno 28] No space left on device: 'log.db'"}, 1 << 30, "disk"),
        ({"kind": "SqliteError", "error": "database or disk is full"}, 1 << 30, "disk"),
        ({}, 0, "disk"),  # it could not write down why
        ({"kind": "OSError", "error": "[Errno 13] Permission denied: 'log.db'"}, 1 << 30, "other"),
    ],
)
def test_a_full_disk_is_named(
    entry: dict[str, str], free: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who sees it frees the disk, and does not look for a mistake in the code."""
    monkeypatch.setattr(ends, "free_bytes", lambda _: free)
    end = end_of(entry, ExitCode.FAILED, tmp_path, silent=False, text="crashed, code 1")
    assert (end.reason, end.text) == (reason, entry.get("error", "crashed, code 1"))
