"""docs/MODULES.md, the list of all modules of the wheel by question: `python -m docs.hooks.modules` writes it again."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "MODULES.md"
_HEAD = """# Modules

Each module of the wheel, by the question that it answers, with the first line of its own docstring. From a question of
yours to a file, and how the parts fit together: [architecture](ARCHITECTURE.md). Users import `grete`, which hands
the public names of these on. This page is made from the code by `python -m docs.hooks.modules`; `tests/test_docs.py`
holds it complete.
"""
# Question → folders, whose modules it has but those that another question names, and modules.
GROUPS: dict[str, list[str]] = {
    "What can I declare?": ["framework/api", "framework/api/topics", "framework/api/tasks", "framework/api/sinks"],
    "What are windows, joins and versioned stores, as a task declares them?": ["framework/api/stateful"],
    "How do keys and values become bytes?": ["framework/api/serdes", "framework/api/registry"],
    "What is a job, and which of it does its state pin?": ["framework/api/jobs"],
    "What does everything use?": ["framework"],
    "What are the bytes?": ["protocol"],
    "What does a task decide, in either mode?": ["framework/core", "framework/core/changelog", "framework/core/graph"],
    "What does an aligned task decide?": ["framework/core/aligned"],
    "What does a deterministic task decide?": ["framework/core/deterministic"],
    "Who of the members of a job runs which partition?": ["framework/core/members"],
    "When does a process of a machine start, end, start again?": ["framework/core/supervision"],
    "How are a task's decisions performed?": ["framework/execution", "framework/execution/engine"],
    "How does a task read its inputs?": ["framework/execution/inputs"],
    "How does a task write and restore its changelog?": [
        "framework/execution/changelog",
        "framework/execution/prebuilt",
    ],
    "How does my code run?": ["framework/execution/task_code", "framework/execution/records"],
    "When do timers fire?": ["framework/execution/timing"],
    "How are calls made, and when does a record that waits for one take effect?": ["framework/execution/calls"],
    "How is my code run in deterministic mode?": ["framework/execution/deterministic"],
    "Which lines of my code may not be deterministic?": ["framework/execution/deterministic/lint"],
    "How do outputs get to files and tables?": ["framework/execution/sinks", "framework/sinks"],
    "How is state stored on disk?": ["framework/stores", "framework/stores/rocksdb"],
    "How are the writes of a task kept until their commit?": ["framework/stores/overlay"],
    "What is a log?": ["framework/logs"],
    "How does the embedded log work?": ["framework/logs/embedded"],
    "How does the log on Kafka work?": ["framework/logs/kafka"],
    "How are topics on Kafka written and read?": ["framework/logs/kafka/write", "framework/logs/kafka/read"],
    "What does a Kafka client say, and what is a broker asked?": ["framework/logs/kafka/client"],
    "Where are a job's files, code and topics?": ["framework/job"],
    "What runs in a worker process?": ["framework/worker", "framework/worker/process", "framework/worker/logs"],
    "How does a worker process start and end?": ["framework/worker/life", "framework/worker/pipes"],
    "Who restarts the processes of a job?": ["framework/worker/supervisor"],
    "How is a machine a member of a job?": ["framework/worker/members"],
    "What does a running job show over HTTP?": [
        "framework/monitor",
        "framework/monitor/page",
        "framework/monitor/queries",
    ],
    "How is state read from outside?": ["framework/state", "framework/state/read", "framework/state/read/checkpoints"],
    "What may change between two starts of a job?": ["framework/state/pins"],
    "How is state written from outside?": [
        "framework/state/write",
        "framework/state/write/bulk",
        "framework/state/write/moving",
    ],
    "How do records get into a log from outside?": ["framework/feeds", "framework/clients"],
    "How does a job run over its history?": [
        "framework/batch",
        "framework/spark/backfill",
        "framework/spark/backfill/account",
        "framework/spark/backfill/run",
    ],
    "How does Spark read and write state?": ["framework/spark", "framework/spark/format"],
    "How does state become files?": ["framework/spark/export"],
    "How does Spark move the state of a job?": ["framework/spark/moving"],
    "How is a history run again?": ["framework/replay", "framework/replay/determinism"],
    "How does an audit follow a running job?": ["framework/replay/audit"],
    "How is a task taken home, and run again there?": ["framework/replay/incident"],
    "How do I test a job, or a back end?": [
        "framework/pytest_plugin.py",
        "framework/testing",
        "framework/testing/broker",
        "framework/testing/contracts",
        "framework/testing/late_end",
    ],
    "Which code does a command run?": [
        "framework/cli",
        "framework/cli/commands",
        "framework/cli/doctor",
        "framework/cli/output",
    ],
}


def by_question() -> dict[str, list[Path]]:
    """Return question → its modules, in the order in which GROUPS names their places. A module is in one of them."""
    named = {ROOT / place for places in GROUPS.values() for place in places if place.endswith(".py")}
    return {
        question: [
            path
            for place in places
            for path in ([ROOT / place] if place.endswith(".py") else sorted((ROOT / place).glob("*.py")))
            if path.name != "__init__.py" and (place.endswith(".py") or path not in named)
        ]
        for question, places in GROUPS.items()
    }


def page() -> str:
    """Return the page. Raises AttributeError for a module without a docstring."""
    parts = [_HEAD]
    for question, modules in by_question().items():
        rows = [f"| `{path.relative_to(ROOT)}` | {_first_line(path)} |" for path in modules]
        parts.append("\n".join([f"## {question}", "", "| module | what it is |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.splitlines()[0].replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
