"""The backend `smddp`: gloo on CPUs, NCCL (a double of it) on GPUs."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from berth.smdistributed.dataparallel.torch import backend

LIMIT = timedelta(seconds=7)
SETTINGS = SimpleNamespace(
    store="the store", group_rank=0, group_size=2, timeout=LIMIT, group_id="4", global_ranks_in_group=[2, 3]
)


class NcclDouble:
    """Records its arguments."""

    Options = SimpleNamespace

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.made = (store, rank, size)
        self.options = options
        self.numbered = False

    def _set_sequence_number_for_group(self) -> None:
        self.numbered = True


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", NcclDouble, raising=False)
    monkeypatch.setattr(backend, "_used_backends", [])


@pytest.mark.usefixtures("gpus")
def test_gpus_use_nccl(capsys: pytest.CaptureFixture[str]) -> None:
    made = backend._create(SETTINGS, None)
    assert (made.made, made.numbered) == (("the store", 0, 2), True)
    assert vars(made.options) == {"_timeout": LIMIT, "global_ranks_in_group": [2, 3], "group_name": "4"}
    backend._create(SETTINGS, None)
    assert capsys.readouterr().err == "smddp: open implementation, not AWS's library: 2 ranks over NCCL\n", (
        "the line must be logged once"
    )


@pytest.mark.usefixtures("gpus")
def test_options_of_the_script_reach_nccl() -> None:
    given = SimpleNamespace(is_high_priority_stream=True)
    assert backend._create(SETTINGS, given).options is given
    assert given._timeout == LIMIT


@pytest.mark.parametrize(("cuda", "devices"), [(True, ["cuda"]), (False, ["cpu"])])
def test_backend_is_registered_once_for_its_device(
    cuda: bool, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(dist.Backend, "register_backend", lambda *given, **named: calls.append((given, named)))
    monkeypatch.setattr(dist.Backend, "backend_list", ["gloo"])
    backend.register()
    assert calls == [(("smddp", backend._create), {"extended_api": True, "devices": devices})]
    monkeypatch.setattr(dist.Backend, "backend_list", ["gloo", "smddp"])
    backend.register()
    assert len(calls) == 1
