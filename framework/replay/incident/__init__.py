"""An incident: what one task needs to run again from a commit, in one file."""
