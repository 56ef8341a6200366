"""A copy of the repository, in which a mistake can be made and a test be run: the working tree is never touched."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.waiting import CROWD_MAX, MachineTime
from tests.verification.outside.mutants import ROOT, Mutant

LIMIT_S = 60  # of a test on a machine of its own; one that waits for what does not come has to say so within 30 s
LOOK_S = 0.5  # from look to look whether it has ended
PASSED, FAILED = 0, 1  # exit codes of pytest; all others are no outcome of the test
PLUGINS = ("-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin")  # the others take most of the start
SAID_MAX = 4_000  # characters of a test's last words that are shown


class Ran(NamedTuple):
    """The end of a test. ``code``: pytest's exit code; ``seconds``: of a machine that has nothing else to do."""

    code: int
    seconds: float
    said: str


class Workbench:
    """A copy. One test at a time runs in it."""

    def __init__(self) -> None:
        """Copy what is under version control, as it is in the working tree."""
        self._directory = Path(tempfile.mkdtemp(prefix="outside-"))
        self.root = self._directory / "copy"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_symlink() or (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the copy."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def with_mistake(self, mutant: Mutant) -> Ran:
        """Run the mutant's test on code that has its mistake."""
        path = self.root / mutant.file
        self._put(path, mutant.mistaken(path.read_text()))
        try:
            return self.run(mutant.test)
        finally:
            self._put(path, (ROOT / mutant.file).read_text())

    @staticmethod
    def _put(path: Path, text: str) -> None:
        """Write a module; what was compiled of it goes, for another one of this second and size may be there."""
        path.write_text(text)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, test: str) -> Ran:
        """Run one test on the copy's code, in a process group of its own, of which nothing is left."""
        temporary = self._directory / "t"
        shutil.rmtree(temporary, ignore_errors=True)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=short"]
        command += [*PLUGINS, f"--timeout={LIMIT_S * CROWD_MAX}", f"--basetemp={temporary}", test]
        counted = MachineTime()
        process = subprocess.Popen(
            command,
            cwd=self.root,
            env=plain
            | {"CI": "true", "PYTHONPATH": str(self.root), "PYSPARK_PYTHON": sys.executable}
            | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        while True:
            try:
                said, _ = process.communicate(timeout=LOOK_S)
            except subprocess.TimeoutExpired:
                if counted.look() < LIMIT_S:
                    continue
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
                process.returncode = FAILED
            return Ran(process.returncode, counted.look(), said[-SAID_MAX:])
