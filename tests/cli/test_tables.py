"""Tables of the command line, on a terminal and in a pipe."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from grete.cli.output.tables import print_table


@pytest.mark.parametrize("terminal", [True, False])
def test_no_cell_is_cut(terminal: bool) -> None:
    """Each row is one line with all that it says, however narrow the screen is."""
    positions = ", ".join(f"sentences[{number}] 1,000 of 1,000" for number in range(16))
    table = Table("task", "external inputs", box=None)
    table.add_row("count-words-0", positions)
    shown = io.StringIO()
    print_table(Console(file=shown, width=40, force_terminal=terminal, color_system=None), table)
    assert len(shown.getvalue().splitlines()) == 2
    assert f"count-words-0  {positions}" in shown.getvalue()
