"""Raises the number of files that this process may have open: each task's RocksDB has up to 80."""

import resource
from contextlib import suppress

FILES_MAX = 1 << 20  # of 10,000 tasks; some systems allow a thousand times that, which costs tables in the kernel
_FILES_ON_MACOS = 10_240  # it says "unlimited" and takes this


def allowed() -> int:
    """Return how many files a process may have open once it has called ``raise_limit``."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounds = [FILES_MAX if limit == resource.RLIM_INFINITY else limit for limit in (soft, most)]
    return max(bounds[0], min(bounds[1], FILES_MAX))


def raise_limit() -> None:
    """Take what the system allows, as a JVM does. A login has 1,024 by default, and may have far more."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (allowed(), _FILES_ON_MACOS):
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            return
