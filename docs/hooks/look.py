"""Look at the built site in a browser, at two widths: `make docs-look`. Every page is measured, some are pictured.

Chromium reaches nothing but the site itself. A page that is wider than the window, or whose scripts fail, is named.
"""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

SITE, PICTURES = Path("site"), Path("build/look")
WIDTHS = (1280, 390)  # a desk, a phone
PICTURED = (
    "",
    "reference/api/",
    "reference/settings/",
    "explanation/checkpoints/",
    "explanation/recovery/",
    "BENCHMARKS/",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGES_AT_ONCE = 16
# Each page in a frame of one width; what is wrong with it, as JSON.
_MEASURE = """<!doctype html><title>look</title><pre id="found"></pre><script>
const pages = PAGES, found = {};
Promise.all(pages.map(page => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.width = "WIDTHpx"; frame.style.height = "800px"; frame.src = page;
  frame.onload = () => setTimeout(() => {
    const root = frame.contentDocument.documentElement;
    const scripts = "__md_get" in frame.contentWindow;
    found[page] = {width: root.scrollWidth, title: frame.contentDocument.title, scripts: scripts};
    done();
  }, 300);
  document.body.append(frame);
}))).then(() => { document.getElementById("found").textContent = JSON.stringify(found); });
</script>"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        """Drop a line of the access log."""


def main() -> int:
    """Look at every page; print what is wrong; 1 if something is."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(
            f"no browser: install one of {', '.join(BROWSERS)} (Debian, Ubuntu: apt install chromium)", file=sys.stderr
        )
        return 2
    pages = sorted(f"{path.parent.relative_to(SITE)}/".removeprefix("./") for path in SITE.rglob("index.html"))
    PICTURES.mkdir(parents=True, exist_ok=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        wrong = [each for width in WIDTHS for each in measured(browser, address, pages, width)]
        for width in WIDTHS:
            for page in PICTURED:
                picture = PICTURES / f"{page.strip('/').replace('/', '-') or 'index'}-{width}.png"
                run(browser, f"{address}/{page}", f"--window-size={width},1600", f"--screenshot={picture}")
        server.shutdown()
    print("\n".join([*wrong, f"{len(pages)} pages at {len(WIDTHS)} widths; pictures in {PICTURES}/"]))
    return 1 if wrong else 0


def measured(browser: str, address: str, pages: list[str], width: int) -> list[str]:
    """Return a line for each page that is wider than ``width``, has no title, or whose scripts did not run."""
    wrong = []
    sheet = SITE / "look.html"
    for at in range(0, len(pages), PAGES_AT_ONCE):
        some = pages[at : at + PAGES_AT_ONCE]
        sheet.write_text(
            _MEASURE.replace("PAGES", json.dumps([f"/{page}" for page in some])).replace("WIDTH", str(width))
        )
        dom = run(browser, f"{address}/{sheet.name}", "--dump-dom")
        (text,) = re.findall(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
        found = json.loads(html.unescape(text) or "{}")
        for page in some:
            seen = found.get(f"/{page}")
            if seen is None or seen["width"] > width or not seen["title"] or not seen["scripts"]:
                wrong.append(f"{page or 'index'} at {width} px: {seen or 'it did not load'}")
    sheet.unlink()
    return wrong


def run(browser: str, url: str, *options: str) -> str:
    """Open a URL in a browser without a window, which reaches no other host; return what it prints."""
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    ]
    rules = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    done = subprocess.run([*command, rules, *options, url], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
