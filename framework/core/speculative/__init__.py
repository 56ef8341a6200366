"""Deterministic tasks that process a record on its arrival, and take it back if an earlier one comes (D7).

Theory of operation. The order is that of deterministic mode: (t, source, channel, and the order in which the channel's
producer made it). Nothing in that order depends on arrival, so a producer may send before it is certain: a *bundle* is
all that one unit of work has made for one partition, and has a place in the order. A *revision* replaces the bundle of
a place, by nothing if it is taken back; the last one counts. A *bound* says that no bundle up to a (t, source) will
be revised any more. It is what a progress message is when tasks wait.

A task runs the bundles that it has, the lowest first, over versions of its state (versions.py). A bundle that comes
late runs at its place; those that have read what it changes run again, and only what they then make otherwise goes
downstream, as revisions. A bundle at or below the bounds of all channels is settled: its writes become the task's
state, and its outputs may leave the job. Commits hold settled state only.

A restarted task begins at its last commit, with a higher generation, and makes all above it again. A reader keeps the
bundles of the earlier generation until the bound of the new one passes them; those that were not sent again by then are
gone. A commit waits until all that was sent is acknowledged, bounds too, so nothing up to it is in doubt.
"""
