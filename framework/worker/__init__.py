"""Worker processes: the tasks that one hosts, and the supervisor that restarts them."""
