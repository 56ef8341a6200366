"""Links and lists of the documents, which are written for GitHub, as the site needs them."""

import os
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# pages whose text is elsewhere in the repository: the file, and its place on the site
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "protocol/README.md": "reference/formats.md",
    "tasks/README.md": "examples.md",
    "tests/core/scenarios/README.md": "explanation/scenarios.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")
_FENCE = re.compile(r"^ *(```|~~~)")
_ITEM = re.compile(r"^( *)([-*]|\d+\.) ")


def source_of(page: str) -> str:
    """Return the file in the repository that a page of the site is made from."""
    return next((source for source, place in OUTSIDE.items() if place == page), f"docs/{page}")


def for_site(text: str, page: str) -> str:
    """Return the text of a page with links that lead to pages of the site, and lists as Python-Markdown reads them."""
    lines: list[str] = []
    prose: list[bool] = []  # of each line: whether it is neither code nor a fence
    fenced = False
    for line in text.split("\n"):
        fence = bool(_FENCE.match(line))
        fenced ^= fence
        prose.append(not (fence or fenced or line.startswith("    ")))
        if prose[-1] and _begins_list(line, lines):
            lines.append("")
            prose.append(True)
        lines.append(line)
    # A link may go over the end of a line.
    chunks = [
        (of, "\n".join(line for _, line in chunk))
        for of, chunk in groupby(zip(prose, lines, strict=True), itemgetter(0))
    ]
    return "\n".join(_LINK.sub(lambda link: _link(link, page), chunk) if of else chunk for of, chunk in chunks)


def _begins_list(line: str, before: list[str]) -> bool:
    """Whether the line is the first item of a list right below a paragraph: GitHub sees a list there."""
    item = _ITEM.match(line)
    if item is None or item[1] or not before or not before[-1].strip():
        return False
    paragraph = next((n for n in range(len(before) - 1, -1, -1) if not before[n].strip()), -1)
    return not any(_ITEM.match(each) for each in before[paragraph + 1 :])


def _title(path: Path) -> str:
    """Return the title of a page, or the name of a file that is not there: the strict build names it."""
    return path.read_text("utf-8").partition("\n")[0].removeprefix("# ") if path.is_file() else path.name


def _link(link: re.Match[str], page: str) -> str:
    """Return the link, led to its place on the site; a file that is not a page there keeps its name only."""
    picture, label, to, anchor = link[1], link[2], link[3], link[4] or ""
    if not to or "://" in to or to.startswith("mailto:"):
        return link[0]
    target = os.path.normpath(Path(source_of(page)).parent / to)
    if (ROOT / target).is_dir() and (ROOT / target / "README.md").is_file():
        target = f"{target}/README.md"
    if target in OUTSIDE:
        place = OUTSIDE[target]
    elif target.startswith("docs/") and target != "docs/decisions/0000-template.md":
        place = target.removeprefix("docs/")
    elif (ROOT / target).exists():
        return label
    else:
        return link[0]  # the strict build names it
    if label.endswith(".md"):  # a file's name means nothing on the site
        label = _title(ROOT / target)
    return f"{picture}[{label}]({os.path.relpath(place, Path(page).parent)}{anchor})"
