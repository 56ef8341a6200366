"""The walk through a page finds what is wrong with it."""

from pathlib import Path

from tests.support.console import Typed, Written, steps, walk

GOOD = """
```python title="say.py"
print("yes")
```

```console
$ python say.py
yes
$ false
$ echo $?
1
$ echo one; echo two; echo three
one
…
three
```
"""


def test_a_page_is_files_and_commands() -> None:
    """Blocks with a title are files; lines behind $ are commands, with what they print."""
    assert steps(GOOD)[:3] == [Written("say.py", 'print("yes")\n'), Typed("python say.py", "yes"), Typed("false", "")]


def test_a_page_that_is_right_has_no_differences(tmp_path: Path) -> None:
    """Three dots stand for any text, and a command may fail if the page shows its exit code."""
    assert walk(GOOD, tmp_path) == []


def test_other_output_and_other_exit_codes_are_found(tmp_path: Path) -> None:
    """A difference says the command, what it printed and what the page says."""
    (first, second) = walk(GOOD.replace("\nyes", "\nno").replace("$ echo $?\n1\n", ""), tmp_path)
    assert first == "$ python say.py\nexit code 0, printed:\nyes\n\nthe page says:\nno"
    assert second.startswith("$ false\nexit code 1")


def test_a_walk_without_a_broker_ends_where_one_is_needed(tmp_path: Path) -> None:
    """And a page that ends the shell is found."""
    page = "```console\n$ echo 1\n1\n$ echo localhost:9092\nx\n```\n"
    assert walk(page, tmp_path) == []
    (tmp_path / "with").mkdir()
    assert walk(page.replace("x", "localhost:9092"), tmp_path / "with", broker="host:1") == []
    (tmp_path / "end").mkdir()
    assert walk("```console\n$ exit 3\n$ echo 2\n```\n", tmp_path / "end") == ["the shell ended before the page"]
