"""Output of the command line: tables, progress, a reader that is slow or gone."""
