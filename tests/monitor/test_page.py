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
from selenium.webdriver.common.keys import Keys

from framework.job.directory import JobDirectory
from framework.ports import ExternalRecord
from protocol.ids import TopicPartition
from tests.monitor.test_server import until, url_in
from tests.support.browser import Browser
from tests.worker.workers import LIMIT_S

JOB = "tests/monitor/page_job.py"
IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOSTILE = "<img/src=x/onerror=document.title='hacked'>", "\"><script>document.title='hacked'</script>", "&lt;b&gt;"
DESK, PHONE = 1200, 400


@contextmanager
def up(directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `grete up` with a page; yield its address and the process."""
    shown = directory / "up.txt"
    command = [sys.executable, "-m", "framework.cli", "up", JOB, f"--directory={directory / 'job'}", "--http=0"]
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
    run = [sys.executable, "-m", "framework.cli", "run", JOB, f"--directory={directory / 'job'}"]
    environment = {**os.environ, "PAGE_JOB_ARCHIVE": str(directory / "archive")}
    subprocess.run([*run, f"--input=lines={lines}"], check=True, timeout=LIMIT_S, capture_output=True, env=environment)
    return directory


def not_scripted(browser: Browser) -> None:
    """No text has become an element, and nothing but the page's own scripts has run."""
    assert browser.script("return document.querySelectorAll('main img, main script, main b').length") == 0
    assert "hacked" not in browser.driver.title
    assert [error for error in browser.errors() if "400 (Bad Request)" not in error] == []


@pytest.mark.timeout(600)
def test_each_view_of_a_job_that_runs_and_a_kill_as_it_happens(ran: Path, browser: Browser) -> None:
    """Overview, tasks, checkpoint, history, state, topics, letters, changelog; then a worker is killed."""
    browser.sized(DESK)
    with up(ran) as (url, process):
        browser.open(url)
        browser.shows("word-count", "4 of 4", "Nothing is wrong")
        browser.until(lambda: browser.script(RATES)[:1] == ["0/s"])  # it is measured
        feed(ran, *["one two three"] * 50)
        browser.until(lambda: [e for e in browser.script(RATES) if e not in ("", "0/s")])
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
        browser.shows("Nothing is wrong")  # it is over
        browser.open(f"{url}/#/checkpoint")
        browser.shows("all tasks have it", "2 of 2 have it")
        browser.open(f"{url}/#/history")
        browser.shows("Now ", "distance", "a row for each task")
        not_scripted(browser)
        process.send_signal(signal.SIGTERM)
        browser.shows("stopped")
        assert process.wait(LIMIT_S) == 0


RATES = "return [...document.querySelectorAll('.graph .rate')].map((each) => each.textContent)"


def status(browser: Browser) -> Any:
    """Return what the page was told last, as its address has it."""
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
    browser.until(lambda: browser.script(CELLS) == ["be"] or "could not be read" in browser.text())


CELLS = "return [...document.querySelectorAll('tbody th')].map((each) => each.textContent)"


def stored_is_read(browser: Browser, url: str) -> None:
    """Topics, dead letters and changelogs."""
    browser.open(f"{url}/#/topics?topic=lines")
    shown = browser.shows("to be or not to be", "Partition 0 of 2")
    assert HOSTILE[1] in shown
    browser.open(f"{url}/#/letters")
    browser.shows("ValueError: cannot split 'refuse secret-4711'", "stage split")
    browser.find("summary").click()
    browser.shows("raise ValueError")
    browser.open(f"{url}/#/changelog?stage=count&partition=1")
    browser.shows("claim", "commit", "checkpoint ")
    not_scripted(browser)


@pytest.mark.timeout(600)
def test_a_job_that_halts_says_why_and_what_to_do_and_keeps_it(tmp_path: Path, browser: Browser) -> None:
    """A record that the code cannot take ends the job before the reader's eyes; the page stays, with the error."""
    lines = tmp_path / "lines.txt"
    lines.write_text("a good line\n")
    run = [sys.executable, "-m", "framework.cli", "run", JOB, f"--directory={tmp_path / 'job'}"]
    environment = {**os.environ, "PAGE_JOB_ARCHIVE": str(tmp_path / "archive")}
    subprocess.run([*run, f"--input=lines={lines}"], check=True, timeout=LIMIT_S, capture_output=True, env=environment)
    browser.sized(DESK)
    with up(tmp_path, "--set=restarts_max=1", "--set=restart_backoff_ms=1") as (url, process):
        browser.open(url)
        browser.shows("4 of 4")
        feed(tmp_path, "poison")
        error = "this word cannot be counted: poison"
        shown = browser.shows("a record or the code fails", error, "What to do", "halted")
        assert "errors=DeadLetter(Topic(…))" in shown
        assert "raise ValueError" in shown
        assert browser.find("#state").text == "halted"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 4
        assert error in browser.text()
        browser.errors()  # the browser says that nothing answers any more
