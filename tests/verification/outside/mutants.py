"""The list: one mistake is a few lines of one file, which are replaced by others."""

import ast
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CONTRACTS = "framework/testing/contracts"  # whose classes tests inherit
BEYOND = {"prove", "ship"}  # markers of tests that `make test` does not run


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake. ``lives``: why no test of ``make test`` notices it, empty for one that dies."""

    name: str
    room: str
    says: str  # a guarantee, as the docs tell it
    page: str  # where it is told: a file, and "#" with a heading of it
    scenario: str  # in which a user sees that it is broken
    file: str
    old: str  # once in the file
    new: str
    test: str  # what kills it, as pytest names it
    lives: str = ""

    @property
    def digest(self) -> str:
        """Return a digest that tells a result of this mistake from one of an older form of it."""
        told = json.dumps([self.file, self.old, self.new, self.test])
        return hashlib.sha256(told.encode()).hexdigest()[:8]

    def mistaken(self, text: str) -> str:
        """Return the file's text with the mistake in it. Raises ValueError if it is not clear where."""
        found = text.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(
                f"{self.name} ({self.room}.toml): its old text is {found} times in {self.file}, not once: the code has "
                "changed; write the mistake again"
            )
        return text.replace(self.old, self.new)


def mutants() -> dict[str, Mutant]:
    """Return the list by name."""
    found: dict[str, Mutant] = {}
    for path in sorted(HERE.glob("*.toml")):
        for name, fields in tomllib.loads(path.read_text()).items():
            if name in found:
                raise ValueError(f"{name} is in {found[name].room}.toml and in {path.name}")
            found[name] = Mutant(name=name, room=path.stem, **fields)
    return found


def complaints(mutant: Mutant, root: Path = ROOT) -> Iterator[str]:
    """Yield the faults of an entry, as far as a look at the files tells."""
    try:
        mutated = mutant.mistaken((root / mutant.file).read_text())
    except (OSError, ValueError) as error:
        yield str(error)
    else:
        try:
            ast.parse(mutated) if mutant.file.endswith(".py") else None
        except SyntaxError as error:
            yield f"{mutant.name}: {mutant.file} is no Python with it: {error}"
    if not all((mutant.says, mutant.scenario)):
        yield f"{mutant.name}: it tells no guarantee, or no scenario"
    page, _, anchor = mutant.page.partition("#")
    if not (root / page).is_file() or (anchor and anchor not in _anchors((root / page).read_text())):
        yield f"{mutant.name}: there is no {mutant.page}"
    yield from _complaints_of_test(mutant, root)


def _complaints_of_test(mutant: Mutant, root: Path) -> Iterator[str]:
    path, _, rest = mutant.test.partition("::")
    function = rest.partition("[")[0].rpartition("::")[2]
    tree = ast.parse((root / path).read_text()) if (root / path).is_file() else ast.Module([], [])
    kinds = [kind for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) and rest.startswith(f"{kind.name}::")]
    inherited = sorted((root / CONTRACTS).glob("*.py")) if kinds else []
    trees = [tree, *(ast.parse(each.read_text()) for each in inherited)]
    functions = [each for one in trees for each in ast.walk(one) if isinstance(each, ast.FunctionDef)]
    of_name = [each for each in functions if each.name == function]
    if not of_name:
        yield f"{mutant.name}: there is no test {mutant.test}"
    marked = [decorator for each in of_name for decorator in each.decorator_list]
    marked += [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "pytestmark"
    ]
    beyond = {each.attr for decorator in marked for each in ast.walk(decorator) if isinstance(each, ast.Attribute)}
    if beyond & BEYOND:
        yield f"{mutant.name}: {mutant.test} is no test of `make test`"


def _anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
