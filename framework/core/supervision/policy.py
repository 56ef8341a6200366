"""The policies of supervision: how long anything may take, and how often it may fail. Times are in seconds."""

from dataclasses import dataclass

from grete.settings import Settings

SILENT_SHARE = 1.25  # of a worker's own bound: it knows first, and can say where it hangs
SILENT_MARGIN_S = 2.0  # for it to say so
STOP_MARGIN_S = 2.0  # after which a worker is killed that was to end by itself
START_FACTOR = 2  # of the bound of silence before the first report: a process imports, and opens large stores
GAP_SHARE = 0.25  # of the bound of silence that one look may count: a supervisor that did not run has read no report
DOUBLINGS_MAX = 40  # of the wait before a restart: its bound is reached long before


@dataclass(frozen=True)
class Policy:
    """The bounds that a job's settings give.

    ``stop_s``: from a worker's signal to its kill. ``silent_s_max``: without a report. ``standby_stop_s``: from a
    standby's signal to its kill. ``standby_still_s``: in which a restore reads nothing: then a worker may find out why.
    """

    restarts_max: int
    backoff_ms: int
    backoff_ms_max: int
    stop_s: float
    silent_s_max: float
    standby_stop_s: float = 5.0
    standby_still_s: float = 10.0

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        """Return the policy of a job."""
        return cls(
            restarts_max=settings.restarts_max,
            backoff_ms=settings.restart_backoff_ms,
            backoff_ms_max=settings.restart_backoff_ms_max,
            stop_s=settings.shutdown_timeout_ms / 1000 + STOP_MARGIN_S,
            silent_s_max=settings.liveness_timeout_ms / 1000 * SILENT_SHARE + SILENT_MARGIN_S,
        )

    @property
    def silent_start_s_max(self) -> float:
        """The bound of silence before the first report of a process."""
        return self.silent_s_max * START_FACTOR

    @property
    def gap_s_max(self) -> float:
        """The most silence that one look counts. Reports that came meanwhile were read before it."""
        return self.silent_s_max * GAP_SHARE

    def restart_wait_ms(self, ends: int) -> int:
        """Return the wait after this number of ends in a row: none after the first, then twice as long each time."""
        doublings = min(ends, DOUBLINGS_MAX) - 2
        return 0 if ends == 1 else min(self.backoff_ms << doublings, self.backoff_ms_max)
