"""Makes ``features-RELEASE.tar.xz``: jobs that use all of release 0.2.0, which workers ran until they were killed.

    git worktree add --detach ../before 2cb97088
    python tests/upgrade/make_features.py ../before tests/upgrade/features-0.2.0.tar.xz

Commit 2cb97088 is release 0.2.0, 8c49a178 the last one of 0.3.0, d90973dd is 0.4.0.

A commit before 0.4.0 has the modules `framework` and `protocol`, and this script is taken as it was at 8c49a178. At
0.4.0 all of it is as it was there: in that checkout ``python -m tests.upgrade.make_features --make OUT``, and ``pack``
of today.

Each job has committed its first records when it is killed, and has processed others, which it has not committed.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.support.parity_job import ParityJob
from tests.support.parity_records import table
from tests.upgrade.features import EXPECTED, FIRST, KILLED, MODES, MORE

SHARED = ("support/parity*.py", "support/draining.py", "upgrade/features.py", "upgrade/make_features.py")
DROPPED = ("LOG*", "OPTIONS-*", "*.lock", "LOCK", "*.early", "logs", "*.db-queue", "*.db-lock", "__*")
NO_COMMIT = Settings(checkpoint_interval_ms=600_000, event_time_idle_ms=600)
PROCESSED_S = 8.0  # until workers that commit nothing have processed all
MAKE, KILL = "--make", "--kill"


def made(directory: Path, mode: str) -> ParityJob:
    """Return a new job."""
    directory.mkdir(parents=True)
    (directory / "job.py").write_text(f"from tests.upgrade.features import job_of\n\njob = job_of({mode!r})\n")
    job = ParityJob(directory)
    job.make(table())
    return job


def make(out: Path) -> None:
    """Make all directories."""
    for mode in MODES:
        whole = made(out / "whole" / mode, mode)
        whole.run(FIRST, KILLED, MORE)
        found = [list(whole.state().items()), [(topic, list(each.items())) for topic, each in whole.outputs().items()]]
        killed = made(out / mode, mode)
        killed.run(FIRST)
        killed.log.close()
        command = [sys.executable, "-m", "tests.upgrade.make_features", KILL, str(out / mode)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        (out / mode / EXPECTED).write_bytes(msgspec.msgpack.encode(found))
    shutil.rmtree(out / "whole")


def kill(directory: Path) -> None:
    """Process records and commit nothing; then kill the workers, and this process before it can start others."""
    job = ParityJob(directory)
    with LocalJob(job.job, job.reference, job.directory, NO_COMMIT) as local:
        job.feed(KILLED)
        end = time.monotonic() + PROCESSED_S
        while time.monotonic() < end:
            local.poll(20)
        processes = [local.supervisor.process(number) for number in range(job.job.workers)]
        for process in processes:  # each has a session of its own, and would stop gracefully without its supervisor
            assert process is not None
            process.kill()
        os.kill(os.getpid(), signal.SIGKILL)


def main(checkout: Path, archive: Path) -> None:
    """Make the directories with the modules of ``checkout``, which gets the job's modules of today, and pack them."""
    from tests.upgrade.make_stored import pack  # that of today: an earlier commit has none

    tests = Path(__file__).absolute().parents[1]
    for path in [path for pattern in SHARED for path in tests.glob(pattern)]:
        shutil.copy(path, checkout / "tests" / path.relative_to(tests))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [sys.executable, "-m", "tests.upgrade.make_features", MAKE, str(out)]
        environment = {**os.environ, "PYTHONPATH": str(checkout.absolute())}
        subprocess.run(command, env=environment, cwd=checkout, check=True)
        pack(out, archive, DROPPED)


if __name__ == "__main__":
    if sys.argv[1] == MAKE:
        make(Path(sys.argv[2]))
    elif sys.argv[1] == KILL:
        kill(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
