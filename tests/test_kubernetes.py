"""The files of the page on Kubernetes fit the program: its command, its probes, its settings and its names."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it has no types
from typer.main import get_command

from grete.cli.commands.up import app
from grete.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "kubernetes.md"
BLOCKS = re.findall(r"```yaml title=\"[^\"]*\"\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def files() -> tuple[dict[str, Any], dict[str, Any]]:
    """The StatefulSet and the ScaledObject."""
    members, scaling = map(yaml.safe_load, BLOCKS)
    return members, scaling


def test_the_command_is_one_that_is_there(files: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Each option is one of `grete up`, and the state is on the volume."""
    pod = files[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    grete, up, job, *options = container["command"]
    assert (grete, up) == ("grete", "up")
    known = {name for parameter in get_command(app).params for name in parameter.opts}
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given.keys() <= known, given.keys() - known
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [given["--directory"]]
    port = container["ports"][0]["containerPort"]
    assert given["--http"] == f"0.0.0.0:{port}"
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": container["ports"][0]["name"]}
    assert pod["terminationGracePeriodSeconds"] > 2 * Settings().shutdown_timeout_ms / 1000
    assert Path(job).stem == files[0]["metadata"]["name"]


def test_what_is_scaled_is_the_job_by_its_own_group(files: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """The group of a job has its name."""
    members, scaling = files
    assert scaling["spec"]["scaleTargetRef"] == {
        "apiVersion": members["apiVersion"],
        "kind": members["kind"],
        "name": members["metadata"]["name"],
    }
    (trigger,) = scaling["spec"]["triggers"]
    assert (trigger["type"], trigger["metadata"]["consumerGroup"]) == ("kafka", members["metadata"]["name"])
