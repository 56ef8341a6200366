"""The definition, graph and start that a job has settled; the plan of a change."""
