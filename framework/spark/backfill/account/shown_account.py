"""The account of a history for people, as tables."""

from collections.abc import Iterator

from rich.table import Table

from grete.clock_text import clock_text
from grete.spark.backfill.account.reconciled import HistoryAccount

FILES_MAX = 20  # that fit on a screen; --json has all
_INPUT = ("input", "rows", "from", "to", "taken", "refused", "twice", "left out", "in no file", "from the log")
_SEAM = ("input", "files end at", "offset", "the log begins at", "offset", "keys there", "of these in the files")
_FILE = ("input", "file", "rows", "from", "to", "first offset", "last offset")


def tables(account: HistoryAccount) -> Iterator[Table]:
    """Yield tables: of the inputs, of where files and log meet, of the first files; none if nothing came from files."""
    if not account.files:
        return
    inputs, seams, files = Table(*_INPUT), Table(*_SEAM), Table(*_FILE)
    for each in account.inputs:
        counts = each.taken, each.refused, each.twice, each.left_out, each.in_no_file, each.from_log
        times = _time(each.first_ms), _time(each.last_ms)
        inputs.add_row(f"{each.topic}[{each.partition}]", f"{each.rows:,}", *times, *(f"{count:,}" for count in counts))
        ends = _time(each.last_ms), _count(each.last_offset), _time(each.log_ms), _count(each.log_offset)
        seams.add_row(f"{each.topic}[{each.partition}]", *ends, f"{each.log_keys:,}", f"{each.known_keys:,}")
    for file in account.files[:FILES_MAX]:
        times = _time(file.first_ms), _time(file.last_ms)
        offsets = map(_count, (file.first_offset, file.last_offset))
        files.add_row(f"{file.topic}[{file.partition}]", file.file, f"{file.rows:,}", *times, *offsets)
    if len(account.files) > FILES_MAX:
        files.add_row("…", f"{len(account.files) - FILES_MAX:,} more: --json has all", *[""] * 5)
    yield inputs
    yield seams
    yield files


def _count(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _time(at_ms: int | None) -> str:
    return "–" if at_ms is None else clock_text(at_ms, utc=True)
