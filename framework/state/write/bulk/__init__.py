"""A bulk write: it claims the tasks of a job and writes their changelogs."""
