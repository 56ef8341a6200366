"""Real text to index: the extract of the English Wikipedia that gensim brings as test data, a paragraph a document.

pip takes it from the package registry at run time, and it is kept in the cache: nothing of it is in this repository.
"""

import bz2
import importlib.util
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

PACKAGE = "gensim==4.4.0"
# One wheel for every machine: it is unzipped and never installed, so its platform does not matter.
WHEEL = "--platform manylinux_2_28_x86_64 --platform manylinux_2_24_x86_64 --python-version 3.12 --implementation cp"
MEMBER = "gensim/test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
WORDS_LEAST = 20  # of a paragraph; shorter ones are headings and lists
PARAGRAPHS = 5_568
FETCH_S_MAX = 300.0


def paragraphs() -> list[str]:
    """Return all paragraphs of 20 words or more, in one fixed random order: each stretch is like any other.

    Raises SystemExit if they cannot be fetched, or are not the ones that earlier figures were measured with.
    """
    path = _cache() / "articles.json"
    if not path.exists():
        texts = list(_from_wheel())
        if len(texts) != PARAGRAPHS:
            raise SystemExit(f"{PACKAGE} has {len(texts)} paragraphs, not {PARAGRAPHS}: figures would not compare")
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(texts))
        draft.rename(path)
    found: list[str] = json.loads(path.read_text())
    random.Random(6).shuffle(found)
    return found


def _cache() -> Path:
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grete"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _from_wheel() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        arguments = ["download", "--quiet", "--no-deps", "--only-binary=:all:", *WHEEL.split(), "--dest", name, PACKAGE]
        command = [sys.executable, "-m", "pip", *arguments]
        if importlib.util.find_spec("pip") is None:  # a virtual environment made by uv
            uvx = shutil.which("uvx")
            if uvx is None:
                raise SystemExit("the articles are fetched by pip: install pip into this environment")
            command = [uvx, "pip", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_S_MAX)
        if done.returncode:
            raise SystemExit(f"fetching the articles failed: {' '.join(command)}\n{done.stderr[-2_000:]}")
        with zipfile.ZipFile(next(Path(name).glob("*.whl"))) as wheel:
            data = bz2.decompress(wheel.read(MEMBER))
    for _, page in ET.iterparse(io.BytesIO(data)):  # noqa: S314  # a pinned file of a pinned release
        if page.tag.endswith("}page") and page.find("{*}redirect") is None:
            text = page.findtext("{*}revision/{*}text") or ""
            yield from (part for part in text.split("\n\n") if len(part.split()) >= WORDS_LEAST)
