"""Second jobs that a fork refuses before it opens any log."""

from pathlib import Path

import pytest

from grete import Input, Job, Record, Store, Task, Topic, int64, utf8
from grete.errors import ConfigError
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from grete.state.write.fork import fork

words = Topic("words", key=utf8, value=utf8)


class First(Task):
    """Counts words, and keeps the last one."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    last = Store("last", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None: ...


class Second(Task):
    """Has the same stores, the other way round."""

    name = "first"
    words = Input(words)
    last = Store("last", key=utf8, value=utf8)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None: ...


def test_stores_in_another_order_are_refused(tmp_path: Path) -> None:
    """A changelog has a store's number, not its name: the one's entries would be the other's."""
    log = EmbeddedLog(tmp_path / "log.db")
    with pytest.raises(
        ConfigError, match=r"stage 0 is first with .*, counts, last in 'one', and first with .*, last, counts in 'two'"
    ):
        fork(
            log,
            Job("one", stages=[First]),
            [],
            log,
            Job("two", stages=[Second]),
            Settings(),
            copy=False,
        )
    log.close()
