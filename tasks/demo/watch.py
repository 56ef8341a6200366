"""The end of `make demo FOLLOW=1`: a search that changes on screen as files change."""

import time

from grete.cli.feeding import Feeding
from grete.cli.output.progress import Screen
from grete.cli.stop_signal import StopSignal
from grete.errors import TransientError
from grete.feeds.folder import FolderFeed
from grete.worker.supervisor.local_job import LocalJob
from tasks.demo.search import Lookup, found

POLL_MS = 20


def follow(local: LocalJob, feed: FolderFeed, lookup: Lookup, query: str, screen: Screen, stop: StopSignal) -> None:
    """Feed what changes until Ctrl-C; search again after each change that the index has taken in."""
    screen.say(f"\nFollowing {feed.root}: edit, add or delete a file; Ctrl-C ends (QUERY=… watches another search)")
    screen.say(f"  {found(lookup, query)}")
    feeding = Feeding(local, feed, {}, follow=True)
    seen, changed_s = len(feeding.fed), 0.0
    while not stop.asked:
        feeding.step()
        local.poll(POLL_MS)
        if len(feeding.fed) > seen:
            report = feeding.fed[-1]
            if report.fed and not changed_s:
                changed_s = time.monotonic()
            seen = len(feeding.fed)
        if changed_s and local.drained(feeding.ends()):
            counts = feeding.fed[-1].counts
            what = ", ".join(f"{counts[name]} {name}" for name in ("new", "changed", "deleted") if counts[name])
            took_ms = (time.monotonic() - changed_s) * 1000
            try:
                line = found(lookup, query)
            except TransientError:
                continue  # a worker is putting its store in order: the next round sees it
            screen.say(f"{time.strftime('%H:%M:%S')} {what}, in the index after {took_ms:.0f} ms")
            screen.say(f"  {line}")
            changed_s = 0.0
