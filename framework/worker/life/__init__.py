"""The life of a worker or standby process: it is started, opens its tasks, runs, and ends."""
