"""A job at work until it has nothing left."""

import time

from grete.worker.supervisor.local_job import LocalJob

LIMIT_S = 600.0


def drain(local: LocalJob) -> None:
    """Wait until the workers have committed all that the inputs have now."""
    ends, deadline = local.ends(), time.monotonic() + LIMIT_S
    while not local.drained(ends):
        assert time.monotonic() < deadline, local.checkpoint_ids()
        local.poll(20)
