"""The page in a real browser: each view of a real job, a kill and a halt as they happen, and large jobs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.job.directory import JobDirectory
from grete.logs.embedded.reader import EmbeddedReader
from grete.monitor.job_view import JobView, ServingEnd, WorkerView
from grete.monitor.page.browse import Browse
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.page import Page
from grete.monitor.server import Monitor, serving
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import DropCounts, EarlyBytes, InputReport, OtherTasks, Portion, TaskReport
from grete.settings import Settings
from tests.monitor.test_server import url_in
from tests.support.browser import Browser
from tests.support.reports import AT_MS, by_name, task_report
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S

JOB = "tests/monitor/page_job.py"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOSTILE = "<img/src=x/onerror=document.title='hacked'>", "\"><script>document.title='hacked'</script>", "&lt;b&gt;"
DESK, PHONE = 1200, 400
pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def copied(directory: Path) -> Path:
    """Return the file of the job in a folder of the test: pictures show its name."""
    path = directory / "word_count_job.py"
    path.write_bytes(Path(JOB).read_bytes())
    return path


@contextmanager
def up(directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `grete up` with a page; yield its address and the process."""
    shown = directory / "up.txt"
    command = [
        sys.executable,
        "-m",
        "grete.cli",
        "up",
        str(copied(directory)),
        f"--directory={directory / 'job'}",
        "--http=0",
    ]
    environment = {**os.environ, "PAGE_JOB_ARCHIVE": str(directory / "archive")}
    with (
        shown.open("wb") as out,
        subprocess.Popen([*command, *options], stdout=out, stderr=out, env=environment) as process,
    ):
        try:
            yield until(lambda: url_in(shown)), process
        finally:
            process.kill()


def feed(directory: Path, *texts: str) -> None:
    """Append lines to the input of a job that has run."""
    log = JobDirectory(directory / "job").open_log(create=False)
    at = TopicPartition("lines", 0)
    log.open_metadata("word-count").produce_with_meta(
        [ExternalRecord(at, None, text.encode(), 1_790_000_000_000) for text in texts], {}
    )
    log.close()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that has counted some words, among them hostile ones, and refused a line."""
    directory = tmp_path_factory.mktemp("page")
    lines = directory / "lines.txt"
    lines.write_text("\n".join(["to be or not to be", "refuse secret-4711", *HOSTILE] * 3) + "\n")
    run = [sys.executable, "-m", "grete.cli", "run", str(copied(directory)), f"--directory={directory / 'job'}"]
    environment = {**os.environ, "PAGE_JOB_ARCHIVE": str(directory / "archive")}
    subprocess.run([*run, f"--input=lines={lines}"], check=True, timeout=LIMIT_S, capture_output=True, env=environment)
    return directory


def not_scripted(browser: Browser) -> None:
    """No text has become an element, and nothing but the page's own scripts has run."""
    assert browser.script("return document.querySelectorAll('main img, main script, main b').length") == 0
    assert "hacked" not in browser.driver.title
    assert [error for error in browser.errors() if "400 (Bad Request)" not in error] == []


def test_each_view_of_a_job_that_runs_and_a_kill_as_it_happens(ran: Path, browser: Browser, pictures: bool) -> None:
    """Overview, tasks, checkpoint, history, state, topics, letters, changelog; then a worker is killed."""
    browser.sized(DESK)
    with up(ran) as (url, process):
        browser.open(url)
        browser.shows("word-count", "4 of 4", "No problem found")
        browser.until(lambda: browser.script(RATES)[:1] == ["0/s"])  # it is measured
        # all but the rate of letters
        browser.until(lambda: [rate for rate in fed_rates(ran, browser) if rate in ("", "0/s")] == ["0/s"])
        state_is_read(browser, url)
        stored_is_read(browser, url)
        browser.open(f"{url}/#/tasks")
        shown = browser.shows("split-0", "count-1", "Workers", "runs, pid")
        (pid, _) = (worker["pid"] for worker in status(browser)["workers"])
        assert f"pid {pid}" in shown
        browser.open(f"{url}/#/")
        browser.shows("4 of 4")
        os.kill(pid, signal.SIGKILL)
        browser.shows("was killed by SIGKILL", "worker 0 takes input again after", "4 of 4")
        browser.shows("No problem found")  # it is over
        if pictures:
            browser.picture(IMAGES / "page-overview.png", 760)
            browser.sized(DESK)
        browser.open(f"{url}/#/checkpoint")
        browser.shows("all tasks have it", "2 of 2 have it")
        browser.open(f"{url}/#/history")
        browser.shows("Now ", "distance", "a row for each task")
        not_scripted(browser)
        process.send_signal(signal.SIGTERM)
        browser.shows("stopped")
        assert process.wait(LIMIT_S) == 0


def fed_rates(directory: Path, browser: Browser) -> list[str]:
    """Return the rates that the page shows while records come."""
    feed(directory, "one two three")
    return list(browser.script(RATES))


RATES = "return [...document.querySelectorAll('.graph .rate')].map((each) => each.textContent)"


def status(browser: Browser) -> Any:
    """Return the status that the page was told last, as its address has it."""
    return json.loads(
        browser.driver.execute_async_script(
            "const done = arguments[0]; fetch('/page/live.json').then((a) => a.text()).then(done)"
        )
    )


def state_is_read(browser: Browser, url: str) -> None:
    """By key, by prefix, as of a checkpoint; what is not there, and what is no checkpoint, is said."""
    browser.open(f"{url}/#/state")
    browser.shows("count/counts", "utf8 → int64", *HOSTILE)
    not_scripted(browser)
    key = browser.find("#key")
    key.send_keys("be", Keys.ENTER)
    browser.until(lambda: browser.script(CELLS) == ["be"])
    browser.open(f"{url}/#/state?prefix=t")
    browser.until(lambda: sorted(browser.script(CELLS)) == ["three", "to", "two"])
    browser.open(f"{url}/#/state?checkpoint=17")
    browser.shows("This could not be read", "17")
    browser.open(f"{url}/#/checkpoint")
    checkpoint = browser.until(lambda: browser.script("return document.querySelector('tbody a')?.textContent"))
    browser.open(f"{url}/#/state?checkpoint={checkpoint}&key=be")
    browser.until(lambda: browser.script(CELLS) == ["be"])


CELLS = "return [...document.querySelectorAll('tbody th')].map((each) => each.textContent)"


def stored_is_read(browser: Browser, url: str) -> None:
    """Topics, dead letters and changelogs."""
    browser.open(f"{url}/#/topics?topic=lines")
    shown = browser.shows("to be or not to be", "records read, of 2 partitions; there are no older ones.")
    assert HOSTILE[1] in shown
    browser.open(f"{url}/#/letters")
    browser.shows("ValueError: cannot split 'refuse secret-4711'", "stage split")
    browser.click("summary")
    browser.shows("raise ValueError")
    browser.open(f"{url}/#/changelog?stage=count&partition=1")
    browser.shows("claim", "commit", "checkpoint ")
    not_scripted(browser)


def test_a_job_that_halts_says_why_and_what_to_do(tmp_path: Path, browser: Browser, pictures: bool) -> None:
    """A record that the code cannot take ends the job before the reader's eyes; the page stays, with the error."""
    lines = tmp_path / "lines.txt"
    lines.write_text("a good line\n")
    run = [sys.executable, "-m", "grete.cli", "run", str(copied(tmp_path)), f"--directory={tmp_path / 'job'}"]
    environment = {**os.environ, "PAGE_JOB_ARCHIVE": str(tmp_path / "archive")}
    subprocess.run([*run, f"--input=lines={lines}"], check=True, timeout=LIMIT_S, capture_output=True, env=environment)
    browser.sized(DESK)
    with up(tmp_path, "--set=restarts_max=1", "--set=restart_backoff_ms=1") as (url, process):
        browser.open(url)
        browser.shows("4 of 4")
        feed(tmp_path, "poison")
        error = "this word cannot be counted: poison"
        browser.until(lambda: browser.find("#state").text == "halted")
        browser.shows("a record or the code fails", error, "raise ValueError")
        browser.shows("What to do", "errors=DeadLetter(Topic(…))")
        if pictures:
            browser.picture(IMAGES / "page-halted.png", 700)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 4
        assert error in browser.text()


# --- jobs that are too large to run here: views of them, a real server, a real browser ---


class Wide(Task):
    """Cuts lines."""

    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output(Topic("words", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        """Do nothing: it does not run."""


class Slow(Task):
    """Counts words."""

    words = Input(Topic("words", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Topic("totals", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        """Do nothing: it does not run."""


PARTITIONS, HOURS_MS = 64, 3 * 3_600_000
LATE_FROM_MS, LATE_TO_MS = HOURS_MS // 3, HOURS_MS // 3 + 600_000  # when one task was held up
STREAM = "shop.wide.words.slow"
ROWS = "return document.querySelectorAll('table')[1].tBodies[0].rows.length"


def seen(name: str, ms: int, age_ms: int, sent: int, **changed: Any) -> TaskReport:
    """Return the report of a task ``ms`` after the first view."""
    none = {"inputs": (), "dropped": DropCounts(0, 0, 0), "dead_letters": 0, "sink_bytes": 0}
    few = {"uncommitted_bytes": 40_000, "unacknowledged_bytes": 0, "held_bytes": 0, "early_bytes": EarlyBytes(0, 0)}
    counts = {"records_in": sent, "records_out": sent, "sent_to": {STREAM: sent}}
    return task_report(name, **{"checkpoint_id": AT_MS + ms - age_ms, **none, **few, **counts, **changed})


def large(ms: int) -> JobView:
    """Return a job of 64 workers: count-7 is held up for ten minutes, and at the end restores its state."""
    workers = []
    last = ms >= HOURS_MS - 20_000
    for partition in range(PARTITIONS):
        held = partition == 7 and LATE_FROM_MS <= ms < LATE_TO_MS
        read = InputReport(topic="lines", partition=partition, offset=ms // 100, lag_from=ms // 100)
        wide = seen(f"wide-{partition}", ms, 150, ms // 40, inputs=(read,))
        trouble: dict[str, Any] = {}
        if last and partition == 7:
            trouble = {"status": "starting", "restore": Portion(2 * (ms - HOURS_MS + 30_000), 100_000)}
        if last and partition == 9:
            trouble = {"held_up": True, "held_by": "unacked_bytes_max", "unacknowledged_bytes": 34 << 20}
        if last and partition == 11:
            trouble = {"behind": OtherTasks(4.2, ("wide-3",)), "channels": Portion(63, 64)}
        age_ms = ms - LATE_FROM_MS if held else 250 + 11 * partition
        tasks = by_name(wide, seen(f"slow-{partition}", ms, age_ms, ms // 80, **trouble))
        workers.append(
            WorkerView(number=partition, partitions=(partition,), running=True, pid=4_000 + partition, tasks=tasks)
        )
    ends = {f"lines[{partition}]": ms // 100 + 3 + partition % 5 for partition in range(PARTITIONS)}
    at_ms, all_ = AT_MS + ms, tuple(workers)
    return JobView(job="shop", at_ms=at_ms, workers=all_, checkpoint_interval_ms=200, host="host-1", ends=ends)


VIEWS = "Overview", "Tasks", "Checkpoint", "History", "State", "Topics", "Dead letters", "Changelog"


def reached_by_tab(browser: Browser, url: str) -> None:
    """The link past the navigation, each view, and then what the view has; a view opens with the focus on it."""
    for name in ("__proto__", "constructor", ""):  # what each object has is no view: the overview is shown
        browser.open(f"{url}/#/{name}")
        browser.shows("127 of 128")
    keys = ActionChains(browser.driver)
    reached = []
    for _ in range(len(VIEWS) + 2):
        keys.send_keys(Keys.TAB).perform()
        reached.append(browser.script("return document.activeElement.textContent"))
    assert reached[:-1] == ["To the content", *VIEWS]
    assert browser.script("return document.querySelector('main').contains(document.activeElement)")
    keys.key_down(Keys.SHIFT).send_keys(Keys.TAB * 7).key_up(Keys.SHIFT).send_keys(Keys.ENTER).perform()
    browser.shows("All 64 tasks")
    assert browser.script("return document.activeElement.id") == "content"


def test_64_partitions_and_three_hours_of_points(tmp_path: Path, browser: Browser, pictures: bool) -> None:
    """Tasks are grouped by stage, the worst first; a chart shows the one that was held up; nothing is too wide.

    What the Tab key reaches comes in the order of the page, and Enter opens it.
    """
    job = Job("shop", stages=[Wide, Slow], partitions=PARTITIONS)
    page = Page(graph_of(job, Settings()), Browse(job, tmp_path, lambda: EmbeddedReader(tmp_path / "log.db")))
    monitor = Monitor(60, page)
    with serving(monitor, "0") as url:
        for ms in [*range(0, HOURS_MS - 20_000, 45_000), *range(HOURS_MS - 20_000, HOURS_MS, 1_000)]:
            monitor.show(large(ms))
        reached_by_tab(browser, url)
        for width, dark in ((DESK, False), (PHONE, True)):
            browser.sized(width, dark=dark)
            browser.open(f"{url}/#/tasks")
            shown = browser.shows("All 64 tasks", "held: the log is slow to acknowledge", "wide-3, for 4.2 s")
            assert "restoring: " in shown
            assert " s left" in shown
            assert browser.script("return document.querySelectorAll('.bars')[1].children.length") == PARTITIONS
            assert browser.script(ROWS) == 6
            assert browser.width() <= width
            if pictures and width == DESK:
                browser.picture(IMAGES / "page-tasks.png", 900)
            browser.sized(width, dark=dark)
            browser.find("#all-slow").send_keys(Keys.ENTER)  # by keyboard
            browser.until(
                lambda: browser.script("return document.querySelectorAll('table')[1].tBodies[0].rows.length") == 64
            )
            browser.open(f"{url}/#/history?stage=slow")
            shown = browser.shows("distance", "slow-7", "240 stretches of time")
            assert browser.script("return document.querySelector('canvas').height") == PARTITIONS
            assert browser.script("return document.querySelector('tbody td').textContent").endswith("min")
            assert browser.width() <= width
            if pictures and width == DESK:
                browser.picture(IMAGES / "page-history.png", 620)
            browser.sized(width, dark=dark)
            browser.open(f"{url}/#/")
            browser.shows("127 of 128", "63 of 64 tasks running", "Age of the oldest checkpoint", "Busy share")
            assert browser.script("return document.querySelectorAll('.small .line').length") >= 2
            assert browser.width() <= width
            if pictures and width == PHONE:
                browser.picture(IMAGES / "page-phone.png")
        assert browser.errors() == []
        monitor.end(ServingEnd("stopped", ""))
