"""`grete sql`: a query over the state of a job at one checkpoint, by DuckDB."""

from importlib.util import find_spec
from typing import Annotated, Any

import typer

from grete.cli.job_command import job_command
from grete.cli.job_target import NamedJob
from grete.cli.moved_state import at_checkpoint
from grete.cli.options import AtCheckpoint
from grete.cli.output.reading import print_json
from grete.errors import ConfigError
from grete.state.pins.pinning import check_readable
from grete.state.read.shown import plain, to_text

app = typer.Typer(add_completion=False)
_PACKAGES = "duckdb", "pyarrow", "numpy"


@job_command(app, without="set")
def sql(
    named: NamedJob,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY", help="SQL of DuckDB. Tables: each store by its name, each window by its own, letters."
        ),
    ],
    *,
    at: AtCheckpoint = AtCheckpoint(),
) -> None:
    """Print what a query finds in the committed state, of one checkpoint of all stores, and in the dead letters.

    A table has key, value, partition and checkpoint_id, of a window also start and end. Letters are those that are
    there now. Needs the extra sql.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)}: not installed; queries need the extra: pip install 'grete[sql]'")
    from grete.spark.export.job_tables import JobTables

    with named.read() as (job, log):
        check_readable(job, log)  # stores get the ids that their state has
        columns, rows = JobTables(log, job, at_checkpoint(job, log, at.asked)).query(query)
        if not at.json:
            print("\t".join(columns))
        for row in rows:
            if at.json:
                print_json(dict(zip(columns, map(plain, row), strict=True)))
            else:
                print("\t".join(map(_cell, row)))


def _cell(value: Any) -> str:
    return "" if value is None else to_text(value)
