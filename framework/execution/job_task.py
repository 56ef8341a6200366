"""One task of a job: its stage as it is declared, and the number of its partition."""

from typing import NamedTuple

from grete.api.jobs.graph import StageGraph
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Topology


class JobTask(NamedTuple):
    """One task of a job, before anything of it is open."""

    stage: StageGraph
    topology: Topology
    partition: int

    @property
    def where(self) -> str:
        """The task as errors name it."""
        return f"stage {self.stage.name}, partition {self.partition}"

    @property
    def owner(self) -> tuple[str, str]:
        """The job and the task, as sinks know them."""
        return self.topology.job, f"{self.stage.name}-{self.partition}"

    @property
    def wiring(self) -> TaskWiring:
        """Its place in the graph, in numbers."""
        return wire(self.topology, self.stage.ordinal, self.partition)
