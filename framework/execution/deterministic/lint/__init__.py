"""Reads the code of a task, and of what it calls in the user's project, for what may differ when it runs again (D3)."""
