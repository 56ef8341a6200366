"""Writing state in bulk: rescale, fork, migrate, apply, rebuild."""
