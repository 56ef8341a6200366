"""A loop that waits for pipes is woken by other threads."""

import os
import threading

from grete.worker.pipes.wakeup import WakeableSelector
from tests.worker.workers import LIMIT_S


def test_a_call_ends_the_wait_and_hides_nothing() -> None:
    """A wait returns at once for a call before it and one within it, and what has come is still told."""
    selector, (reader, writer) = WakeableSelector(), os.pipe()
    selector.register(reader, "who")
    selector.wake()
    selector.wake()
    assert selector.ready(LIMIT_S) == []
    assert selector.ready(0) == []  # both are taken
    thread = threading.Thread(target=selector.wake)
    thread.start()
    assert selector.ready(LIMIT_S) == []
    thread.join()
    os.write(writer, b"!")
    selector.wake()
    assert selector.ready(LIMIT_S) == ["who"]
    selector.unregister(reader)
    assert selector.ready(0) == []
    for handle in (reader, writer):
        os.close(handle)
    selector.close()


def test_a_call_behind_the_end_writes_nowhere() -> None:
    """The handle may be another file by then."""
    selector = WakeableSelector()
    selector.close()
    reader, writer = os.pipe()  # they get the numbers of the others
    selector.wake()
    selector.close()
    os.write(writer, b"mine")
    assert os.read(reader, 10) == b"mine"
    for handle in (reader, writer):
        os.close(handle)
