"""Makes ``files-RELEASE.tar.xz``: by an earlier release, a job's log, snapshots of its state, and an incident file.

    git worktree add --detach ../before 8c49a178
    python tests/upgrade/make_files.py ../before framework.cli tests/upgrade/files-0.3.0.tar.xz

The second argument is the module of that release's command line: `grete.cli` from 0.4.0 on.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.upgrade.make_stored import DROPPED, FIRST, SECOND, pack

HERE = Path(__file__).parent.absolute()
CODES = ("aligned.py", "deterministic.py")
COMMITS = "--set=checkpoint_interval_ms=100"


def make(folder: Path, command: list[str], environment: dict[str, str]) -> None:
    """Run the job of each code over two files, and pack an incident from the commit between them."""

    def grete(*arguments: str) -> str:
        asked = [*command, *arguments, "--directory=job"]
        return subprocess.run(asked, env=environment, cwd=here, check=True, stdout=subprocess.PIPE, text=True).stdout

    for code in CODES:
        here = folder / code.removesuffix(".py")
        here.mkdir()
        shutil.copy(HERE / code, here)
        rows = sqlite3.connect(here / "rows.db")
        rows.execute("CREATE TABLE totals (word TEXT NOT NULL, total INTEGER NOT NULL)")
        rows.close()
        for name, lines in (("first", FIRST), ("second", SECOND)):
            (here / f"{name}.tsv").write_text("".join(f"{key}\t{value}\n" for key, value in lines))
        grete("run", code, "--input=lines=first.tsv", "--keys", COMMITS)
        tasks = [json.loads(line) for line in grete("checkpoints", code, "--json").splitlines()]
        (at,) = (task["checkpoint_id"] for task in tasks if task["task"] == "split-0")
        grete("run", code, "--input=lines=second.tsv", "--keys", COMMITS)
        grete("incident", "pack", code, "--task=split-0", f"--at={at}", "--output=incident.zip")
        grete("snapshot", code, "--to=snapshots")


def main(checkout: Path, module: str, archive: Path) -> None:
    """Make the directories by the commands of ``checkout``, and pack them without the stores: a snapshot has those."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout.absolute())}
        make(Path(folder), [sys.executable, "-m", module], environment)
        pack(Path(folder), archive, (*DROPPED, "state", "*.tsv"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
