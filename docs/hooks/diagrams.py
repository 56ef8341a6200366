"""Mermaid in the text becomes an SVG in the page when the site is built: no script, no network, and an error fails."""

import hashlib
import html
import json
import re
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

from pymdownx.superfences import SuperFencesException

from grete.spark.java import cache, made

CACHE = cache() / "diagrams"  # a diagram takes a second or two to draw: once, whatever is cloned or cleaned

_LOOK = {
    "theme": "neutral",
    "fontFamily": "DejaVu Sans, Verdana, sans-serif",  # it measures with the first of them
    "sequence": {"actorMargin": 20, "width": 120, "messageMargin": 28, "height": 45},
}


def drawn(source: str, language: str, css_class: str, options: object, md: object, **kwargs: object) -> str:
    """Return the HTML of a fence, as pymdownx.superfences asks for it."""
    name = "d" + hashlib.sha256(f"{version('mermaidx')}{_LOOK}{source}".encode()).hexdigest()[:12]
    kept = CACHE / f"{name}.svg"
    if not kept.is_file():
        svg = _svg(source).replace("my-svg", name)
        with NamedTemporaryFile("w", dir=made(CACHE), encoding="utf-8", delete=False) as draft:
            draft.write(svg)
        Path(draft.name).replace(kept)  # whole, if another build looks for it
    svg = kept.read_text("utf-8")
    (width,) = re.findall(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ', svg)[:1]
    svg = re.sub(r'width="100%"', f'width="{float(width):.0f}"', svg, count=1)
    return f'<div class="diagram" role="img" aria-label="{html.escape(_words(source))}">{svg}</div>'


def _svg(source: str) -> str:
    """Return the drawing. Raises SuperFencesException, with the parser's words, for text that is not Mermaid."""
    import mermaidx

    try:
        return str(mermaidx.render(f"%%{{init: {json.dumps(_LOOK)}}}%%\n{source}").svg())
    except RuntimeError as error:
        raise SuperFencesException(f"a diagram cannot be drawn: {error}\n{source}") from error


def _words(source: str) -> str:
    """Return the first words of a diagram, for readers who do not see it: its title, or its kind."""
    title = re.search(r"accTitle: (.*)", source)
    return title[1] if title else source.split("\n", 1)[0]
