"""Checkpoint intervals for runs on the machine's clock that are to see no checkpoint.

Checkpoints close at multiples of the interval in wall-clock time (A1): "ten minutes" may end a moment after a start.
"""

import time


def just_begun_ms() -> int:
    """Return an interval of ten minutes or more, in ms, that has just begun: none ends for some ten minutes."""
    now = int(time.time() * 1_000)
    return min(range(600_000, 1_200_000, 1_000), key=lambda interval_ms: now % interval_ms)
