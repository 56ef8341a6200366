"""The changelog of a task as the core reads it: what counts, who owns it, what is damaged."""
