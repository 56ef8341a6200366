"""A real browser for tests: Debian's Chromium with its driver, of this machine or fetched without root."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from grete.errors import ConfigError
from tests.support.debian import cache, unpack

LIMIT_S = 120.0  # of any wait: a hang is a failure
PACKAGE = "chromium-driver"  # needs chromium, and that its libraries
LIBRARIES = "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio", "usr/lib/aarch64-linux-gnu"
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # which root has not
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # it reaches this machine alone
)


class NoBrowser(Exception):
    """There is none, and none could be fetched; the message says why."""


class Browser:
    """A browser's one window. Each wait is for a condition."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        driver.set_script_timeout(LIMIT_S)  # the default, 30 s, is little where others have the processor

    def sized(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window so wide and high, in px, in light or dark colours."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url: str) -> None:
        """Load a page."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def leave(self) -> None:
        """Leave the page: if no process serves it any more, the browser says so again and again."""
        self.driver.get("about:blank")
        self.errors()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for something that is true; return it. Fail with the text of the page after the limit."""
        try:
            waiting = WebDriverWait(
                self.driver, LIMIT_S, 0.05, [StaleElementReferenceException]
            )  # drawn again: look again
            return waiting.until(lambda _: condition())
        except TimeoutException:
            raise AssertionError(f"the page shows after {LIMIT_S:.0f} s: {self.text()}") from None

    def text(self) -> str:
        """Return the text that a person sees."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def shows(self, *texts: str) -> str:
        """Wait until the page shows all of these; return all that it shows."""
        self.until(lambda: all(text in self.text() for text in texts))
        return self.text()

    def script(self, code: str) -> Any:
        """Return the value of a script."""
        return self.driver.execute_script(code)

    def width(self) -> int:
        """Return the width of the page, in px: more than the window, if something sticks out."""
        return int(self.script("return document.documentElement.scrollWidth"))

    def find(self, selector: str) -> Any:
        """Return the first element that a CSS selector finds."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click on the first element that a CSS selector finds, once it is there, in one step of the page."""
        found = f"const found = document.querySelector('{selector}'); found?.click(); return found !== null"
        self.until(lambda: self.script(found))

    def picture(self, path: Path, height: int | None = None) -> None:
        """Write a picture of the page, of its whole height or of this one."""
        whole = int(self.script("return document.documentElement.scrollHeight"))
        width = int(self.script("return innerWidth"))
        sizes = {"width": width, "height": height or whole, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
        path.parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(path))

    def errors(self) -> list[str]:
        """Return the complaints of scripts, and of the rules for them, since the last look."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]  # it has no types


@contextmanager
def browsing(directory: Path) -> Iterator[Browser]:
    """Run a browser that keeps its files in ``directory``. Raises NoBrowser."""
    program, driver, environment = _found()
    options = webdriver.ChromeOptions()
    options.binary_location = str(program)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (*ARGUMENTS, f"--user-data-dir={directory / 'profile'}"):
        options.add_argument(argument)
    service = Service(str(driver), env=environment, log_output=str(directory / "driver.log"))
    window = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(window)
    finally:
        window.quit()


def _found() -> tuple[Path, Path, dict[str, str]]:
    """Return the browser, its driver and the environment of both; fetch them the first time."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is not None and driver is not None:
        return Path(program), Path(driver), {**os.environ}
    try:
        root = _fetched()
    except ConfigError as error:
        raise NoBrowser(str(error)) from error
    libraries = ":".join(str(root / each) for each in LIBRARIES)
    return (
        root / "usr/lib/chromium/chromium",
        root / "usr/bin/chromedriver",
        {**os.environ, "LD_LIBRARY_PATH": libraries},
    )


def _fetched() -> Path:
    """Return the folder of the unpacked packages: one for all sessions, for it takes seconds. Raises ConfigError."""
    kept = cache(PACKAGE)
    root = kept / "root"
    if not root.exists():
        kept.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=kept))
        unpack(PACKAGE, kept, fresh)
        try:
            fresh.rename(root)
        except OSError:  # another session was first
            shutil.rmtree(fresh)
    return root
