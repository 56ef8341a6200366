"""The hooks of mkdocs: pages from elsewhere in the repository, links, and the parts that are generated."""

import gc
import re
from pathlib import Path
from typing import Literal

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.hooks import fill, links, twins

_PAGES: dict[str, str] = {}  # of the build: path → Markdown


def on_startup(command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
    """Look for no garbage in a build: what it makes lives until its end."""
    if command == "build":
        gc.disable()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put each decision below the index of the decisions."""
    (project,) = [
        section for tab in config.nav or [] for section in tab.values() if "decisions/README.md" in str(section)
    ]
    (decisions,) = [entry["Decisions"] for entry in project if "Decisions" in entry]
    decisions += [
        f"decisions/{record.name}"
        for record in sorted((links.ROOT / "docs/decisions").glob("0*.md"))
        if record.name != "0000-template.md"
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text is elsewhere in the repository."""
    _PAGES.clear()  # of the build before, where the site is served
    for source, place in links.OUTSIDE.items():
        files.append(File.generated(config, place, content=(links.ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and lead the links to pages of the site."""
    _PAGES[page.file.src_uri] = links.for_site(fill.filled(markdown), page.file.src_uri)
    return _PAGES[page.file.src_uri]


def on_post_build(config: MkDocsConfig) -> None:
    """Write the pages as Markdown, too, and the list of them."""
    twins.write(Path(config.site_dir), config.site_description or "", config.nav or [], _PAGES)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the names of pages in docstrings to the pages."""

    def link(name: re.Match[str]) -> str:
        to = files.get_file_from_path(name[1])
        if to is None:
            raise PluginError(f"{page.file.src_uri} names docs/{name[1]}, which is not there")
        return f'<a href="{to.url_relative_to(page.file)}">docs/{name[1]}</a>'

    return re.sub(r"(?<![\w/])docs/([\w/-]+\.md)", link, html) if page.file.src_uri == "reference/api.md" else html
