"""A sketch of the readings of each device, some thousands of them in a site, and of the whole site beside them."""

from grete import Input, Job, Key, Output, Record, Store, Task, Topic, TumblingWindow, Window, int64, json, utf8

DEVICE = Key(utf8, int64)  # site, device
HOUR_MS = 3_600_000
Sketch = list[int]  # the count of readings by the bits that they need

readings = Topic("readings", key=DEVICE, value=int64)
busy = Topic("busy", key=DEVICE, value=int64)


def with_reading(sketch: Sketch | None, reading: int) -> Sketch:
    """Return a sketch with one more reading."""
    counts = list(sketch or [])
    bits = reading.bit_length()
    counts += [0] * (bits + 1 - len(counts))
    counts[bits] += 1
    return counts


class Sketches(Task):
    readings = Input(readings)
    devices = Store("devices", key=DEVICE, value=json(Sketch))
    sites = Store("sites", key=utf8, value=json(Sketch))
    hours = TumblingWindow("hours", HOUR_MS, key=DEVICE, value=int64)
    out = Output(busy)

    def process(self, record: Record[tuple[str, int], int]) -> None:
        site = record.key[0]
        self.devices.put(record.key, with_reading(self.devices.get(record.key), record.value))
        self.sites.put(site, with_reading(self.sites.get(site), record.value))
        self.hours.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[tuple[str, int], int]) -> None:
        self.out.send(window.key, window.value)


job = Job("devices", stages=[Sketches], partitions=2)
