"""The page of a running job: its files, its data, and what a browser asks."""
