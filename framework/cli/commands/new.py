"""`grete new`: a project to start from, which is one of the examples with its test."""

import importlib.util
import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from grete.errors import ConfigError

PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["{grete}"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""


EXAMPLES = Path(__file__).parent / "examples"  # of the wheel, which has copies; in the repository they are tasks/
REPOSITORY = Path(__file__).parents[3]
AGENTS = Path(__file__).with_name("project_agents.md")  # what a coding agent has to know in a project
NEEDS = {"registry": "grete[registry]"}  # of examples that need an extra

DEFAULT = "word_count"
app = typer.Typer(add_completion=False)


def templates() -> list[str]:
    """Return the names of the examples that a project can begin with."""
    jobs, tests = _folders()
    names = (path.stem for path in jobs.glob("*.py"))
    return sorted(name for name in names if name != "inverted_index" and (tests / f"test_{name}.py").is_file())


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the project, and of its new folder.")],
    template: Annotated[str, typer.Option(help="The example to begin with; a wrong one lists all.")] = "word-count",
) -> None:
    """Write a project with one job, and tests that pass."""
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise ConfigError(f"{name!r} cannot name a project: use lower-case letters, digits and dashes, like word-count")
    example = template.replace("-", "_")
    if example not in templates():
        raise ConfigError(f"no template {template!r}: there are {', '.join(templates())}")
    root, module = Path(name), name.replace("-", "_")
    spec = None if root.exists() else importlib.util.find_spec(module)
    if keyword.iskeyword(module) or (spec is not None and spec.origin is not None):  # a folder has none
        raise ConfigError(
            f"{name!r} cannot name a project: Python has a {'keyword' if keyword.iskeyword(module) else 'module'} "
            f"{module}, and the project's module would have the same name: choose another one"
        )
    try:
        root.mkdir()
    except OSError as error:
        raise ConfigError(f"cannot make {root}: {error.strerror}: choose another name or folder") from error
    jobs, tests = _folders()
    code = (jobs / f"{example}.py").read_text("utf-8")
    test = (tests / f"test_{example}.py").read_text("utf-8")
    files = {
        f"{module}.py": re.sub(r'\bJob\("[^"]+"', f'Job("{name}"', code),
        f"test_{module}.py": test.replace(f"from tasks.{example} import", f"from {module} import"),
        "pyproject.toml": PROJECT.format(name=name, module=module, grete=NEEDS.get(example, "grete")),
        ".gitignore": ".grete/\n__pycache__/\n",
        "AGENTS.md": AGENTS.read_text("utf-8").replace("MODULE", module),
    }
    for path, text in files.items():
        (root / path).write_text(text, encoding="utf-8")
    print(f"Wrote {root}/: {', '.join(files)}")
    print(f"  cd {root} && pip install -e '.[dev]' && pytest")
    if example == DEFAULT:
        print(f"  echo 'so it goes' | grete run {module}.py --input sentences=-")


def _folders() -> tuple[Path, Path]:
    """Return the folders of the examples and of their tests."""
    if EXAMPLES.is_dir():
        return EXAMPLES, EXAMPLES
    return REPOSITORY / "tasks", REPOSITORY / "tests" / "tasks"
