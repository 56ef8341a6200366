"""The audit at the end of `make demo SPARK=1`."""

from framework.cli.commands.audit import tell_audit
from framework.cli.job_target import JobTarget
from framework.cli.progress import Screen
from framework.cli.spark_work import wanted_of
from framework.spark.backfill.audit import audit
from framework.spark.backfill.ranges import LOG
from framework.spark.session import local_session
from framework.worker.local_job import LocalJob


def demonstrate(found: JobTarget, local: LocalJob, screen: Screen) -> bool:
    """Audit the job of the demonstration on Spark; at least once may differ. Returns whether all is right."""
    screen.say("\nAuditing the state on Spark: the tasks' own code over all recorded documents, key by key …")
    spark = local_session("local[*]")
    with screen:
        result = audit(spark, wanted_of(found, [LOG], None), local.log, screen, aligned=local.aligned)
    return tell_audit(screen, found.job, result, aligned=local.aligned) or not local.aligned
