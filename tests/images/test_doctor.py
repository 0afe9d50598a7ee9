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
    live_owner = owner.this_process()
    ended_owner = owner.Owner(ended.pid, live_owner.started, live_owner.machine)
    made = [
        client.networks.create(name, labels=whose.labels(name))
        for name, whose in (("berth-test-gone", ended_owner), ("berth-test-lives", live_owner))
    ]
    try:
        leftovers = _leftovers()
    finally:
        for network in made:
            network.remove()
    assert "network berth-test-gone" in leftovers
    assert "network berth-test-lives" not in leftovers
