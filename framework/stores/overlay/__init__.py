"""The writes of a task above its store, until their commit is in the changelog."""
