"""`python -m grete.cli`, which is how a supervisor starts its workers: with its own interpreter."""

from grete.cli import command_line

if __name__ == "__main__":
    command_line()
