"""Tables and texts in Markdown."""

import re
from collections.abc import Iterable, Sequence

_CODE_OR_BAR = re.compile(r"(`[^`]*`)|\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. A bar in a cell is written so that it does not end the cell; in code it does not anyway."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_CODE_OR_BAR.sub(_whole, cell) for cell in line)} |" for line in lines)


def _whole(found: re.Match[str]) -> str:
    """Return code as it is, and a bar that does not end its cell."""
    return found[1] or "\\|"


def code(text: str) -> str:
    """Return the text as code, empty if it is."""
    return f"`{text}`" if text else ""


def one_line(text: str | None) -> str:
    """Return the text with single spaces, as a cell or a sentence takes it."""
    return re.sub(r"\s+", " ", text or "").strip()


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring."""
    return one_line((text or "").strip().partition("\n\n")[0])
