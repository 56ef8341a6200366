"""`python -m framework.cli`, which is how a supervisor starts its workers: with its own interpreter."""

from framework.cli import command_line

if __name__ == "__main__":
    command_line()
