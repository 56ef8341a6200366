"""One word for one thing: code, tests, benchmarks and pages use the words of docs/GLOSSARY.md, and no older ones."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.trees import nodes_of
from tests.test_tidy import ROOT, lines, tracked

pytestmark = pytest.mark.check  # reads all sources: a change is looked at before it is sent

WHEEL = ("framework/", "protocol/")
ENGINE = (*WHEEL, "tests/core/", "tests/execution/", "tests/stores/", "tests/verification/")
TASKS = ("framework/api/", "framework/core/aligned/", "framework/core/deterministic/", "framework/execution/")
# Metrics have labels, as Prometheus calls them.
WITHOUT_METRICS = (
    *(
        f"framework/{each}/"
        for each in ("api", "batch", "core", "execution", "job", "logs", "state", "stores", "worker")
    ),
    *(each for each in ENGINE if not each.startswith("framework")),
)
WRITTEN = ("*.py", "*.md", "*.txt", "*.toml", "*.yml", "Makefile", "*/Makefile")
# These quote: history, the renames themselves, other systems and the design documents, texts that older builds stored.
QUOTING = (
    "CHANGELOG.md",
    "docs/decisions/",
    "docs/GLOSSARY.md",
    "docs/TRACEABILITY.md",
    "tests/windows/peers/",
    "tests/joins/peers/",
    "tests/protocol/avro_commit.py",
    "tests/protocol/golden.py",
    "tests/protocol/golden_commits.py",
    "tests/protocol/test_golden.py",
    "tests/test_stored_texts.py",
    "tests/test_vocabulary.py",
    "tests/upgrade/",
)
# On a line that names it, the words of another system are right; so is the title of a section of a seed.
OTHERS = re.compile(r"Flink|Kafka Streams|^\| exactly once between stages by|^# From: seed")
LINK = re.compile(r"\]\([^)]*\)")  # the names of decision records are as old as they are
# A docstring that begins so is a noun clause, or a sentence without its subject.
CLAUSE = re.compile(
    r"((What|Who|Whom|Whose|Which|How|When|Where|Why)(ever)?"
    r"|Of (one|an?|the|this|all|each)|(In|From|For|By|At|To|With) (how|which|what|whom))\b"
)
RESULT = re.compile(r"(Return|Yield)( and forget)? (what|who|which|how|when|where|why)\b")  # what it is stays open
SAY_INSTEAD = (
    "begin a docstring with a noun phrase (module, class: 'Limits of …', 'The answer of a call: …'), with a verb "
    "(function: 'Return the number of …'), or with the statement that a test proves ('A scan sees …')"
)
# Fillers: each has a plain verb or preposition ("continues", "next to", "separate", "contains"). The numbers are bounds
# for README.md and these folders together, outside of programs and of what they print.
GUIDES = ("docs/guides/*.md", "docs/start/*.md", "docs/explanation/*.md")
FILLERS = {"goes on": 0, "of its own": 0, "beside": 0, "holds": 0}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PARTS = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Ban(NamedTuple):
    """Words that are not to be used: a pattern over a line in small letters whose names are split into words."""

    words: str
    say: str
    where: tuple[str, ...] = ("",)  # folders and files: outside of them the word is plain English


# A quotation mark before a word: a name that is stored, or one of a setting that has another name now.
BANS = (
    Ban(r"(snapshot|checkpoint) checkpoint", "checkpoint"),
    Ban(r"checkpoint command", "checkpoint marker or rollback marker"),
    Ban(r"commit marker", "checkpoint marker (in a channel) or commit (in the changelog)"),
    Ban(r"abort message", "nothing: an abort is a claim, see docs/decisions/0004-superseded-formats.md"),
    Ban(r"restore (marker|message)|send restore\b", "rollback marker"),
    Ban(r"\bepoch (id|number)", "generation (of a task) or checkpoint (of the job)"),
    Ban(r"processing node", "task"),
    Ban(r"sequence number\b(?= of a (record|frame))", "seq"),
    Ban(r"(exactly|at[ -]least)[ -]ones|exaclty|excatly|atleast", "exactly once, at least once"),
    Ban(r"\b(slave|whitelist|blacklist)\b|\bmaster (task|process|worker)", "a word that says what it does"),
    Ban(r"\b(closed?|closes|open|snapshot) versions?\b|\bversion of (a|the) cut\b", "checkpoint"),
    Ban(r"(?<![\"'])\bversions? = .*checkpoint|checkpoint.* [=>] version\b|[+>] versions?\b.*checkpoint", "checkpoint"),
    Ban(r"(?<!\")\blabel(s|led)?\b", "checkpoint id (of a record)", WITHOUT_METRICS),
    Ban(r"(?<![\"'])\blineages?\b", "rollback history"),
    Ban(r"\bvoid(s|ed|ing)?\b(?!\",\))", "rolled back (a record), invalid (a message), does not count (a bulk write)"),
    Ban(r"(zombie commits|messages?) that (is|are) rolled back", "invalid"),
    Ban(r"\bsweep(s|ing)?\b|\bswept\b", "changelog rewrite, rewrite round"),
    Ban(r"(?<!\")\blayers?\b", "write batch", ENGINE),
    Ban(r"\bclean(ed)? reads?\b", "cached read, read cache"),
    Ban(r"(?<![\"'`])\bpointers?\b", "changelog position"),
    Ban(r"(?<!in )(?<!\")\bfronts?\b", "frontier"),
    Ban(r"(?<!\")\bheart ?beats?\b(?!\.)|\bbeats?\b", "progress message", TASKS),  # a member has heartbeats
    Ban(r"\bcalm\b", "idle (a source), quiet (a time without faults)"),
    Ban(r"\b(hears?|heard)\b", "observe, learn", ENGINE),
    Ban(r"\bpromis(ed|es|ing)\b|\bpromise\b(?!\.| ?\()", "advance"),
    Ban(r"(?<!synchronization )\bbarriers?\b", "alignment"),
    Ban(r"\bbootstrap(s|ped|ping)\b|\b(must|to|or|and|had to) bootstrap\b", "restore"),
    Ban(r"\b(read|reads|reading) back\b", "verify the tail; output recovery; recount"),
    Ban(r"\bverdicts?\b", "outcome"),
    Ban(r"\bundecided\b|\bdecider\b", "in doubt, outcome changelog"),
    Ban(r"\bruns?: \"?(bulk write|committed at)\b|(?<![\"'])\brun id\b|\brun\.tasks\b", "bulk write"),
    Ban(r"\bspares?\b", "prewarmed worker"),
    Ban(r"\b(worker's|with(out)?|its|takes?) orders\b", "worker spec", WHEEL),
    Ban(
        r"\bask(er|ers)\b|\bbells?\b|(?<!zoo )\bkeepers?\b|\binbox\b", "metadata client, notifier, daemon, input reader"
    ),
    Ban(r"\b(the|its|a|put|many) notes\b|metadata\w* notes?\b|\bnote under\b", "job metadata, and an entry of it"),
    Ban(
        r"(?<!\")(?<!downstream )\b(history ms|(clean bytes|layer bytes|sink bytes|lag messages) max|unacked ms max)\b",
        "a setting",
    ),
    Ban(r"\bgrete guarantee\b|setting guarantee\b|release = (read-back|transaction)", "the setting"),
    Ban(r"--by-key\b|--lines\b|\bgrete verify\b(?! past)", "--assume-keyed, --input, grete check-determinism"),
    Ban(
        r"\b(a|its|the|job's|task's|recorded|deterministic) (?<!for the )(?<!in the )past\b(?! checkpoint|\.\")",
        "history",
    ),
    Ban(r"\bpasts\b|\bpast( =|:|\.\w)", "history"),
    Ban(r"\bdesign \d", "a rule of docs/PROTOCOL.md, or a decision"),
    Ban(r"(?<![\"'=])\bnobody\b|\b(anew|whoever)\b|\bso many\b", "a plain word, and who acts"),
    Ban(
        r"\b(it|that|which|what|task|job|rewrite|markers?|messages?|records?|nothing) (stands|stood)\b(?! for\b)"
        r"|\b(stands|stood) (before|behind|between)\b",
        "is",
    ),
    Ban(r"\b(outputs?|says|what) (is|are) out\b(?! of)", "visible"),
    # what a blind replacement left
    Ban(r"\b(will|did not|to|must|then|can) (rolled back|rollback)\b(?! (marker|history))", "roll back"),
    Ban(r"(?<!\")\b(the the|a a|an an|is is|of of|to to)\b", "once"),
)
# One search of each line, and none within a word: half of the time.
EITHER = re.compile(f"(?<![a-z])(?:{'|'.join(f'(?:{ban.words})' for ban in BANS)})")


def in_words(line: str) -> str:
    """Return a line in small letters, its names split into words: at underscores, and where the case changes."""
    return PARTS.sub(" ", LINK.sub("]", line)).lower()


def written() -> list[Path]:
    """Return all that people read or run, without those that quote."""
    return [path for path in tracked(*WRITTEN) if not str(path.relative_to(ROOT)).startswith(QUOTING)]


@functools.cache  # four of ten lines are there twice
def banned(line: str) -> tuple[tuple[Ban, str], ...]:
    """Return the bans that a line breaks, somewhere or everywhere, each with the words of the line."""
    words = in_words(line)
    if not EITHER.search(words) or OTHERS.search(line):
        return ()
    return tuple((ban, match[0]) for ban in BANS if (match := re.search(ban.words, words)))


def found() -> dict[str, list[str]]:
    """Return the advice → "file:line: the banned words" of each place where they are used."""
    places: dict[str, list[str]] = {}
    for path in written():
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(lines(path), 1):
            for ban, words in banned(line.strip()):
                if name.startswith(ban.where):
                    places.setdefault(ban.say, []).append(f"{name}:{number}: {words}")
    return places


def test_one_word_for_each_thing() -> None:
    """Names, comments, docstrings, errors, help texts and pages have the words of docs/GLOSSARY.md."""
    assert found() == {}


def test_all_of_it_is_searched() -> None:
    """Each part of the repository has files among those that are searched."""
    names = {str(path.relative_to(ROOT)) for path in written()}
    for part in ("framework/core/", "protocol/", "tasks/", "tests/core/scenarios/", "benchmarks/", "docs/hooks/"):
        assert [name for name in names if name.startswith(part)], part
    assert {"README.md", "Makefile", "pyproject.toml", "docs/PROTOCOL.md", "mkdocs.yml"} <= names


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("self._clean_reads = MADE_ANEW", "self. clean reads = made anew"),
        ("class HTTPHeartBeat2Ms:", "class http heart beat2 ms:"),
        ("see [0014](decisions/0014-runs-and-their-verdicts.md)", "see [0014]"),
    ],
)
def test_names_are_split_into_words(line: str, words: str) -> None:
    """A banned word is found as a part of a name, too."""
    assert in_words(line) == words


def parsed(text: str) -> list[ast.AST]:
    """Return all nodes of a source, its module first, as ``nodes_of`` does."""
    return list(ast.walk(ast.parse(text)))


def clauses(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the first line of each docstring that begins with a question word."""
    for node in nodes:
        text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
        if text and CLAUSE.match(text):
            yield text.partition("\n")[0]


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """A docstring names its subject first, so that it can be read alone, in an index or in a log of a failed test."""
    found = [f"{path.relative_to(ROOT)}: {text}" for path in tracked("*.py") for text in clauses(nodes_of(path))]
    assert not found, "\n".join([f"{SAY_INSTEAD}:", *found])


def test_docstrings_name_their_result() -> None:
    """The result of a function is a thing with a name: the next bundle, not all that leaves next."""
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in tracked("*.py")
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and RESULT.match(text := ast.get_docstring(node) or "")
    ]
    assert not found, "\n".join(["name the thing ('Return the next bundle, or None'):", *found])
    assert RESULT.match("Return what leaves next.")


def test_a_question_word_is_noticed() -> None:
    """Modules, classes, methods and functions count; a text that only contains the word does not."""
    before = '"""What a job is."""\nclass A:\n    """How it ends."""\n    def b(self):\n        """Whoever asks."""\n'
    assert list(clauses(parsed(before))) == ["What a job is.", "How it ends.", "Whoever asks."]
    assert list(clauses(parsed('"""Of one task."""\ndef f():\n    """In how many ms."""'))) != []
    assert list(clauses(parsed('"""The way to see what is there."""\ndef f():\n    """Whether it is."""'))) == []


def prose(text: str) -> str:
    """Return a page without its programs and what they print."""
    return re.sub(r"^( *)```.*?^\1```$|^    .*$|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def test_pages_for_users_have_no_fillers() -> None:
    """The pages for users say what happens: a task continues, a file contains, a folder is next to another."""
    pages = " ".join(" ".join(prose("\n".join(lines(path))).split()) for path in tracked("README.md", *GUIDES))
    counts = {word: len(re.findall(rf"(?i)\b{word}\b", pages)) for word in FILLERS}
    assert counts == FILLERS, "write 'continues', 'separate', 'next to' or 'with', 'contains' or 'applies' instead"
    assert prose("it goes on\n```console\ngoes on\n```\n`goes on`\n    goes on").split() == ["it", "goes", "on"]


def names_given(nodes: list[ast.AST], module: str) -> Iterator[tuple[str, str]]:
    """Yield (name, what it names) of each class and each alias: ``Name = Other``, ``from … import Other as Name``."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield node.name, f"{module}:{node.lineno}"
        if isinstance(node, ast.ImportFrom):
            renamed = [each for each in node.names if each.asname not in {None, each.name}]
            yield from ((each.asname or "", f"{node.module}.{each.name}") for each in renamed)
    for node in nodes[0].body if isinstance(nodes[0], ast.Module) else ():
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        yield from ((each.id, f"{module}:{each.lineno}") for each in targets if isinstance(each, ast.Name))


def named_twice(modules: dict[str, list[ast.AST]]) -> dict[str, set[str]]:
    """Return each name of a class, or alias of one, that names two things, with those."""
    named: dict[str, set[str]] = {}
    for module, nodes in modules.items():
        for name, what in names_given(nodes, module):
            if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name):
                named.setdefault(name, set()).add(what)
    return {name: what for name, what in named.items() if len(what) > 1}


def test_each_class_has_a_name_of_its_own() -> None:
    """No two classes or aliases of the wheel have one name: a name in a log, an error or a question means one thing."""
    paths = tracked("framework/*.py", "protocol/*.py")
    assert named_twice({str(path.relative_to(ROOT)): nodes_of(path) for path in paths}) == {}


def test_two_names_are_noticed() -> None:
    """Classes, aliases and renaming imports count; one class under one other name in two modules does not."""
    twice = named_twice(
        {"a": parsed("class Run: ..."), "b": parsed("Run = int"), "c": parsed("from d import X as Run")}
    )
    assert twice == {"Run": {"a:1", "b:1", "d.X"}}
    renamed = parsed("from d import X as Y")
    assert named_twice({"a": renamed, "b": renamed, "c": parsed("class X: ...\nRUN = 1")}) == {}
