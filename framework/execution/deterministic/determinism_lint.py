"""Finds code in a task's module that may give another result when it runs again (D3). It warns; digests decide."""

import ast
import importlib
import inspect
import logging
import sys
from collections.abc import Iterator
from typing import NamedTuple

from framework.api.job import Job
from framework.api.task import Task
from framework.errors import ConfigError

# module → what to use instead
SUSPICIOUS = {
    "time": "self.ctx.now()",
    "datetime": "self.ctx.now(), or the record's timestamp",
    "random": "self.ctx.random()",
    "secrets": "self.ctx.random() or self.ctx.uuid()",
    "uuid": "self.ctx.uuid() (uuid.uuid5 is safe)",
    "threading": "one thread: two run in no fixed order",
    "asyncio": "one thread: tasks run in no fixed order",
    "concurrent": "one thread: two run in no fixed order",
    "multiprocessing": "one process: two run in no fixed order",
    "socket": "an input topic: answers differ when asked again",
    "requests": "an input topic: answers differ when asked again",
    "httpx": "an input topic: answers differ when asked again",
    "urllib": "an input topic: answers differ when asked again",
}
SUSPICIOUS_OF_OS = {"urandom", "environ", "getenv", "getpid", "listdir", "scandir", "stat", "times"}
SUSPICIOUS_CALLS = {
    "id": "addresses differ from process to process",
    "hash": "hashes of texts differ from process to process; zlib.crc32 does not",
    "open": "files may change; put what a task needs into a store or a topic",
    "input": "a person does not answer twice alike",
}

logger = logging.getLogger("grete")


class Finding(NamedTuple):
    """A line of a module that may not be deterministic."""

    line: int
    what: str
    instead: str


def check_worker(job: Job) -> None:
    """Warn of suspicious lines in the modules of deterministic tasks.

    Raises ConfigError if texts are hashed with a seed of this process's own: then sets of texts have another order in
    each process.
    """
    stages = [stage for stage in job.stages if stage.mode == "deterministic"]
    if stages and sys.flags.hash_randomization:
        raise ConfigError(
            f"job {job.name!r} is deterministic, and this process hashes texts with a seed of its own, so that a set "
            "of texts has another order in each process: start the worker with PYTHONHASHSEED=0 in its environment"
        )
    for stage in stages:
        for finding in suspicious_lines(stage.task):
            logger.warning(
                "may not be deterministic",
                extra={
                    "stage": stage.name,
                    "file": stage.task.__module__,
                    "line": finding.line,
                    "what": finding.what,
                    "instead": finding.instead,
                },
            )


def suspicious_lines(task: type[Task]) -> list[Finding]:
    """Return the suspicious lines of a task's module, in order; none if its source is not available."""
    try:
        module = sys.modules.get(task.__module__) or importlib.import_module(task.__module__)
        tree = ast.parse(inspect.getsource(module))
    except (ImportError, OSError, TypeError, SyntaxError):
        return []
    return sorted(finding for node in ast.walk(tree) for finding in _of_node(node))


def _of_node(node: ast.AST) -> Iterator[Finding]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from _of_module(node.lineno, alias.name, f"import {alias.name}")
        case ast.ImportFrom(module=str(module), names=names, level=0):
            what = f"from {module} import {', '.join(alias.name for alias in names)}"
            if module == "os":
                if any(alias.name in SUSPICIOUS_OF_OS for alias in names):
                    yield Finding(node.lineno, what, "an input topic or a store")
            else:
                yield from _of_module(node.lineno, module, what)
        case ast.Attribute(value=ast.Name(id="os"), attr=attribute) if attribute in SUSPICIOUS_OF_OS:
            yield Finding(node.lineno, f"os.{attribute}", "an input topic or a store")
        case ast.Call(func=ast.Name(id=name)) if name in SUSPICIOUS_CALLS:
            yield Finding(node.lineno, f"{name}()", SUSPICIOUS_CALLS[name])
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated) if _is_set(iterated):
            yield Finding(iterated.lineno, "iterating over a set", "sorted(...): a set has no fixed order")
        case _:
            return


def _of_module(line: int, module: str, what: str) -> Iterator[Finding]:
    instead = SUSPICIOUS.get(module.partition(".")[0])
    if instead is not None:
        yield Finding(line, what, instead)


def _is_set(node: ast.AST) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left) or _is_set(right)
        case _:
            return False
