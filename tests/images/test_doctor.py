"""Leftovers that the doctor finds on a real engine."""

import subprocess

import docker

from berth.common import owner
from berth.images.probe import _leftovers


def test_leftovers_are_networks_of_killed_runs(
    client: docker.DockerClient,
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = owner.this_process()
    gone = owner.Owner(ended.pid, here.started, here.machine)
    made = [
        client.networks.create(name, labels=whose.labels(name))
        for name, whose in (("berth-test-gone", gone), ("berth-test-lives", here))
    ]
    try:
        found = _leftovers()
    finally:
        for network in made:
            network.remove()
    assert "network berth-test-gone" in found
    assert "network berth-test-lives" not in found
