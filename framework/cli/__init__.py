"""The command line: `grete`."""

from importlib.metadata import version

import typer

app = typer.Typer(name="grete", no_args_is_help=True, add_completion=False, help="Exactly-once stream processing.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"grete {version('grete')}")
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version)) -> None:
    """Run before every command."""


def main() -> None:
    """Run the command that the arguments name."""
    app()
