"""The audit at the end of `make demo SPARK=1`."""

from grete.cli.commands.audit import tell_audit
from grete.cli.job_target import JobTarget
from grete.cli.options import HistoryOptions
from grete.cli.output.progress import Screen
from grete.cli.spark_work import wanted_of
from grete.spark.backfill.audit import audit
from grete.spark.session import local_session
from grete.worker.supervisor.local_job import LocalJob


def demonstrate(found: JobTarget, local: LocalJob, screen: Screen) -> bool:
    """Audit the job of the demonstration on Spark; at least once may differ. Returns whether all is right."""
    screen.say("\nAuditing the state on Spark: the tasks' own code over all recorded documents, key by key …")
    spark = local_session("local[*]")
    with screen:
        result = audit(spark, wanted_of(found, HistoryOptions()), local.log, screen, aligned=local.settings.aligned)
    return tell_audit(screen, found.job, result, aligned=local.settings.aligned) or not local.settings.aligned
