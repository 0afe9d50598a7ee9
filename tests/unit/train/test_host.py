"""What a leader asks of the hosts that join it."""

import pytest

from berth.contract.errors import JobError
from berth.train.hosts import host
from berth.train.hosts.rendezvous import Introduction, kit_version


def test_hosts_must_be_alike() -> None:
    def worker(ranks: int = 8, version: str = kit_version(), backend: str = "smddp") -> dict[str, Introduction]:
        return {"b": Introduction("b", ranks, version=version, backend=backend)}

    host.check_alike(8, "smddp", worker(), "a")
    with pytest.raises(JobError, match="b would run 4 ranks but a 8"):
        host.check_alike(8, "smddp", worker(4), "a")
    with pytest.raises(JobError, match="b has version 0 of the kit"):
        host.check_alike(8, "smddp", worker(version="0", backend=""), "a")
    with pytest.raises(JobError, match="b would use the backend nccl but a smddp; use instances of one kind"):
        host.check_alike(8, "smddp", worker(backend="nccl"), "a")
