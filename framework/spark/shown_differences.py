"""The differences that an audit has found, for people as a table, and for programs as plain objects."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from grete.api.jobs.job import Job
from grete.spark.backfill.audit import StateDifference
from grete.state.read.shown import printable

CELL_CHARS = 60  # of a key or value: three of them fit on a wide terminal
_NAMES = ("stage", "partition", "store", "key", "in_changelog", "recomputed")


def table_of_differences(job: Job, differences: Iterable[StateDifference]) -> Table:
    """Return a table of them."""
    table = Table("stage", "partition", "store", "key", "in the changelog", "recomputed")
    for difference in differences:
        table.add_row(*_cells(job, difference))
    return table


def plain_difference(job: Job, difference: StateDifference) -> dict[str, str | int | None]:
    """Return a difference with the texts of its key and values."""
    return dict(zip(_NAMES, (*difference[:3], *_decoded(job, difference)), strict=True))


def _cells(job: Job, difference: StateDifference) -> list[Text]:
    """Return the cells of a difference."""
    where = difference.stage, str(difference.partition), difference.store
    cells = ("–" if text is None else text for text in _decoded(job, difference))
    return [Text(text if len(text) <= CELL_CHARS else text[:CELL_CHARS] + "…") for text in (*where, *cells)]


def _decoded(job: Job, difference: StateDifference) -> list[str | None]:
    """Return key, value found and value expected: decoded, where the store is one of the user's."""
    stage = job.stage(difference.stage)
    stores = stage.all_stores()
    declared = next((store for store in stores if store.name == difference.store), None)

    def text(raw: bytes | None, *, key: bool = False) -> str | None:
        if raw is None:
            return None
        try:
            value = raw if declared is None else (declared.key if key else declared.value).decode(raw)
        except Exception:  # noqa: BLE001  # a serde may raise anything; the bytes are shown then
            value = raw
        return printable(repr(value))

    return [text(difference.key, key=True), text(difference.found), text(difference.expected)]
