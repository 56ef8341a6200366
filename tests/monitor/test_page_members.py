"""The page of one member in a real browser: it shows the whole job, and what is wrong on another machine."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grete.testing.broker.find import Broker
from tests.monitor.test_server import get, url_in
from tests.support.browser import Browser
from tests.support.waiting import until
from tests.worker.test_members import PARTITIONS, Machines

DESK, PHONE = 1280, 390  # px
IMAGES = Path(__file__).parents[2] / "docs" / "images"
pytestmark = [pytest.mark.kafka, pytest.mark.browser, pytest.mark.timeout(400)]


@pytest.fixture
def machines(kafka_broker: Broker, tmp_path: Path) -> Iterator[Machines]:
    """A job on a broker, without a machine yet."""
    with ExitStack() as opened:
        made = Machines(kafka_broker, tmp_path)
        opened.callback(made.close)
        yield made


def live(url: str) -> dict[str, Any]:
    """Return the data that a page draws now; {} before there are any."""
    return json.loads(get(url, "/page/live.json")[1]) or {}


def causes(url: str) -> set[tuple[str, str, str]]:
    """Return (from, to, cause) of the moves that a page lists now."""
    return {(each["source"], each["target"], each["cause"]) for each in live(url)["moves"]}


def test_each_page_has_all_machines(machines: Machines, browser: Browser, pictures: bool) -> None:
    """Tasks, workers and problems of both; on a phone, too. A machine that is gone is not there any more."""
    machines.up("a", "--http=0")
    machines.until(machines.shared_by("a"))  # else the first assignment may have both, and nothing has moved
    machines.up("b", "--http=0")
    machines.until(machines.shared_by("a", "b"))
    machines.give()
    url = until(lambda: url_in(machines.directory / "a.log"))
    until(
        lambda: [task["state"] for task in live(url).get("tasks", [])] == ["running"] * PARTITIONS,
        "all tasks run",
        saw=lambda: f"{live(url)}\n{machines.logs()}",
    )
    assert {task["host"] for task in live(url)["tasks"]} == {"a", "b"}
    browser.sized(DESK)
    browser.open(f"{url}/#/")
    browser.shows(f"{PARTITIONS} of {PARTITIONS}", "Machines", "this machine", "No problem found.")
    if pictures:
        browser.picture(IMAGES / "page-machines.png")
        browser.sized(DESK)
    browser.open(f"{url}/#/tasks")
    browser.shows("count-0", "a, pid", "b, pid")
    there = next(worker for worker in live(url)["workers"] if worker["host"] == "b")
    os.kill(there["pid"], signal.SIGSTOP)
    browser.open(f"{url}/#/")
    browser.shows(f"worker {there['number']} on b: a worker process is stopped", f"kill -CONT {there['pid']}")
    browser.sized(PHONE)
    browser.shows("a worker process is stopped")
    assert browser.driver.execute_script("return document.body.scrollWidth") <= PHONE
    os.kill(there["pid"], signal.SIGCONT)
    browser.shows("No problem found.")
    machines.kill("b")
    until(lambda: [each["machine"] for each in live(url)["machines"]] == ["a"], "b is gone", saw=machines.logs)
    browser.shows(f"{PARTITIONS} of {PARTITIONS}")
    until(
        lambda: {("a", "b", "join"), ("b", "a", "death")} <= causes(url),
        "each move has its cause",
        saw=lambda: f"{causes(url)}\n{machines.logs()}",
    )
    browser.click("#moves")
    browser.shows("a machine has joined", "its machine was silent")
    assert browser.driver.execute_script("return document.body.scrollWidth") <= PHONE
    machines.require_exact()
