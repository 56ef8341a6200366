"""What moves between machines costs: see ``__main__``."""
