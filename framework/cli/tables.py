"""Tables on a screen or in a pipe: no cell is cut, and a narrow terminal wraps lines."""

from rich.console import Console
from rich.table import Table

from framework.state.shown import printable

WIDTH_MAX = 10_000  # characters: a table is only as wide as its cells are


def print_table(console: Console, table: Table) -> None:
    """Print a table as wide as it is, where the console prints."""
    for column in table.columns:
        column.no_wrap = True
        column._cells = [printable(cell) if isinstance(cell, str) else cell for cell in column._cells]  # noqa: SLF001  # rich has no other way to change them
    wide = Console(file=console.file, force_terminal=console.is_terminal, width=WIDTH_MAX)
    wide.print(table, markup=False, soft_wrap=True)
