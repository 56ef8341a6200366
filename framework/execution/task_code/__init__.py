"""The user's code: it runs over records, timers and windows."""
