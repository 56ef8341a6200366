"""Tables on a screen or in a pipe: no cell is cut, and a narrow terminal wraps lines."""

from rich.console import Console
from rich.table import Table

from grete.state.read.shown import printable

WIDTH_MAX = 10_000  # characters: a table is only as wide as its cells are


def print_table(console: Console, table: Table) -> None:
    """Print a table as wide as it is, where the console prints; its texts without what would steer a terminal."""
    shown = Table(*(column.copy() for column in table.columns), box=table.box)
    for column in shown.columns:
        column.no_wrap = True
    for row in zip(*(column.cells for column in table.columns), strict=True):
        shown.add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in row))
    wide = Console(file=console.file, force_terminal=console.is_terminal, width=WIDTH_MAX)
    wide.print(shown, markup=False, soft_wrap=True)
