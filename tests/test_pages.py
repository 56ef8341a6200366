"""The pages for users do what they say: files as printed, commands as typed, output as shown."""

import os
from pathlib import Path

import pytest

from grete.testing.broker import Broker
from tests.support.console import BROKER, LIMIT_S, steps, walk

pytestmark = pytest.mark.timeout(LIMIT_S + 60)  # what was typed is told first

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    str(path.relative_to(DOCS)): text
    for folder in ("start", "guides")
    for path in sorted((DOCS / folder).glob("*.md"))
    if steps(text := path.read_text("utf-8"))
}
ON_KAFKA = [name for name, text in PAGES.items() if any(BROKER in "".join(step) for step in steps(text))]


@pytest.mark.chaos
@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    """In an empty directory, with nothing but Grete, up to the first step that needs a broker."""
    differences = walk(PAGES[name], tmp_path)
    assert not differences, "\n\n".join(differences)


@pytest.mark.kafka
@pytest.mark.parametrize("name", ON_KAFKA)
def test_a_page_does_what_it_says_on_kafka(name: str, tmp_path: Path, kafka_broker: Broker) -> None:
    """The whole page; only the names of topics and jobs are this test's own."""
    text = PAGES[name].replace("shop-", f"shop-{os.urandom(4).hex()}-")
    differences = walk(text, tmp_path, broker=kafka_broker.bootstrap)
    assert not differences, "\n\n".join(differences)
