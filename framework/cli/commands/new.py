"""`grete new`: a project to start from."""

import re
from pathlib import Path

from framework.errors import ConfigError

TASK = '''"""{name}: counts words. Run it: echo 'so it goes, so it goes' | grete run {module}.py --input sentences=-"""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

sentences = Topic("sentences", key=utf8, value=utf8)
totals = Topic("word-totals", key=utf8, value=int64)


class CountWords(Task):
    """Sentences → for each of their words its new total."""

    lines = Input(sentences)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        """Count the words of one sentence."""
        for word in record.value.split():
            n = self.counts.get(word, 0) + 1
            self.counts.put(word, n)
            self.out.send(word, n)


job = Job("{name}", stages=[CountWords])
'''

TEST = '''"""Tests of {module}.py. Run them: pytest"""

from {module} import CountWords, job, sentences, totals

from framework.testing import Kit


def test_words_are_counted() -> None:
    """Each word has its total, and each new total is sent once, although the task crashes on the way."""
    kit = Kit(job)
    kit.feed(sentences, "1", "so it goes")
    kit.feed(sentences, "2", "so it went")
    kit.run(crashes=3)
    assert {expected_state} == kit.state(CountWords.counts)
    assert [("goes", 1), ("it", 1), ("it", 2), ("so", 1), ("so", 2), ("went", 1)] == sorted(kit.pairs(totals))
'''

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["grete"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""


def new(name: str) -> None:
    """Write the project. Raises ConfigError: a bad name, or something of that name is there."""
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigError(f"{name!r} cannot name a project: use lower-case letters, digits and dashes, like word-count")
    root, module = Path(name), name.replace("-", "_")
    try:
        root.mkdir()
    except OSError as error:
        raise ConfigError(f"cannot make {root}: {error.strerror}: choose another name or folder") from error
    state = '{"so": 2, "it": 2, "goes": 1, "went": 1}'
    files = {
        f"{module}.py": TASK.format(name=name, module=module),
        f"test_{module}.py": TEST.format(module=module, expected_state=state),
        "pyproject.toml": PROJECT.format(name=name, module=module),
        ".gitignore": ".grete/\n__pycache__/\n",
    }
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
    print(f"Wrote {root}/: {', '.join(files)}")
    print(f"  cd {root} && pip install -e '.[dev]' && pytest")
    print(f"  echo 'so it goes' | grete run {module}.py --input sentences=-")
