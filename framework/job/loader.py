"""Finding and importing the code of a job."""

import ast
import hashlib
import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from grete.api.jobs.job import Job
from grete.errors import ConfigError, FrameworkError

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal

OURS = frozenset({"grete"})


def load_job(reference: str, name: str = "job") -> Job:
    """Return the ``job`` of a module (``tasks.word_count``) or file (``word_count.py``).

    Raises ConfigError saying what is missing, or what the module raised and where; errors of ours pass as they are.
    """
    try:
        module = _load_file(Path(reference)) if reference.endswith(".py") else _load_module(reference)
    except FrameworkError:
        raise
    except SystemExit as error:
        raise ConfigError(
            f"{reference} cannot be loaded: it ends the process, with {error.code!r}{_where(error)}: "
            'write that below if __name__ == "__main__"'
        ) from error
    except Exception as error:  # user code
        raised = f"{type(error).__name__}: {error}".removesuffix(": ")
        remedy = _as_module(reference, error) or (
            ": install it, or mend the code there" if isinstance(error, ImportError) else ": mend the code there"
        )
        raise ConfigError(f"{reference} cannot be loaded: {raised}{_where(error)}{remedy}") from error
    job = getattr(module, name, None)
    if not isinstance(job, Job):
        found = "nothing" if job is None else f"{job!r:.80}"
        raise ConfigError(f"{reference} must define {name} = Job(...): its name {name!r} is bound to {found}")
    return job


def code_digest(job: Job) -> str:
    """Return 8 hex digits of the files that define the tasks of a job, "" if there are none to be read.

    Where they are, and what they import, plays no part: it tells machines of a job apart that were given other code.
    """
    modules = {stage.task.__module__ for stage in job.stages}
    try:
        texts = sorted(Path(str(sys.modules[name].__file__)).read_bytes() for name in modules)
    except (OSError, KeyError, AttributeError):
        return ""
    return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()[:8]


def _where(error: BaseException) -> str:
    """Return the last place of user code before it raised; a SyntaxError says so itself."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_ours(each.filename)]
    return (
        f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
    )


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen ") or Path(file).resolve().is_relative_to(Path(__file__).resolve().parents[1])


def _as_module(reference: str, error: Exception) -> str:
    """Return the command for a file that imports its package's modules: by its path, it is a module of no package."""
    path = Path(reference).resolve()
    if not (isinstance(error, ImportError) and reference.endswith(".py")):
        return ""
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(ast.parse(path.read_bytes()))):
        return ""
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names, folder = [folder.name, *names], folder.parent
    if len(names) == 1:
        return f"; {path.parent} is no package, as it has no __init__.py: import its modules by their names alone"
    name = ".".join(names)
    return f"; it is a module of the package {names[0]}: name it so, in the folder of that: cd {folder}, then {name}"


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"no file {path}: give the path of a Python file that defines job = Job(...)")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file: its name must end in .py")
    if path.stem in sys.stdlib_module_names or path.stem in OURS:
        raise ConfigError(f"{path} has the name of a module that Python or Grete imports: give the file another name")
    _append(path.parent)
    known = {*sys.modules}
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # before it runs: dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    _tell_of_others(path, {*sys.modules} - known)
    return module


def _append(folder: Path) -> None:
    """Let code of a job import what is beside it if it is nowhere else: a file there cannot replace one of ours."""
    place = str(folder.resolve())
    if place not in sys.path and not (place == str(Path.cwd()) and "" in sys.path):
        sys.path.append(place)


def _tell_of_others(path: Path, imported: Collection[str]) -> None:
    """Warn of modules that lie beside the job's file, where others of their names were imported."""
    folder = path.parent.resolve()
    for name in sorted(imported):
        beside = [folder / f"{name}.py", folder / name / "__init__.py"]
        origin = getattr(sys.modules.get(name), "__file__", None)
        found = next((file for file in beside if file.is_file()), None)
        if origin is not None and found is not None and Path(origin).resolve() not in beside:
            logger.warning("%s: %s is imported from %s, and not from %s: rename one of them", path, name, origin, found)


def _load_module(name: str) -> ModuleType:
    _append(Path.cwd())
    try:
        if not all(name.split(".")):  # importlib takes it for a name within a package
            raise ModuleNotFoundError(name=name)
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise ConfigError(
                f"no module {name!r}: give a module such as tasks.word_count, or the path of a file"
            ) from error
        raise
