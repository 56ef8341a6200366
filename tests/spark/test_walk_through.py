"""docs/guides/backfill.md does what it says: its files are written, its commands typed, its output compared."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.cli import command_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "backfill.md").read_text("utf-8")
JOB, HISTORY, TABLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WALK = re.sub(r"```.*?```", "", PAGE.split("## Details")[0], flags=re.DOTALL)
BLOCKS = [
    re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^    .*\n)+", WALK, re.MULTILINE)
]


def test_the_walk_goes_as_printed(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Restore from Parquet, go live, audit, read the state as a table; … stands for what differs each time."""
    monkeypatch.chdir(tmp_path)
    Path("orders.py").write_text(JOB)
    Path("today.tsv").write_text('ann\t{"amount":1000}\n')
    exec(HISTORY, {})  # as a reader would type it
    printed = ""
    for block in BLOCKS:
        for line in block.splitlines():
            if line.startswith("grete "):
                monkeypatch.setattr(sys, "argv", line.split())
                with pytest.raises(SystemExit) as ended:
                    command_line()
                printed, errors = capsys.readouterr()
                assert not ended.value.code, errors
            else:
                assert re.search(re.escape(line.strip()).replace("…", ".*"), printed), (line, printed)
    here = f'job="{tmp_path}/orders.py", directory="{tmp_path}/.grete/spending", '  # the session began elsewhere
    exec(TABLE.replace('job="orders.py", ', here), {})
    assert capsys.readouterr().out.strip() == "[('ann', 14500), ('bob', 13500), ('eve', 13491)]"
    assert spark.version
