"""`build.py gpu-check`: errors before the start, the containers that it starts, and the report that it writes."""

import json
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from docker.errors import APIError, ImageNotFound

from berth.common.errors import UserError
from berth.images.pins import pins
from berth.local import cleanup, gpu_check
from tests.unit.local.train.ending_engine import EndingEngine

ABLE = {"Runtimes": {"runc": {}, "nvidia": {}}}
IMAGES = ["berth-train:cu130", "berth-serve:cu130"]


def report(*statuses: str) -> dict[str, Any]:
    return {
        "device": "cuda",
        "checks": [{"name": f"check-{index}", "status": each} for index, each in enumerate(statuses)],
    }


class Engine(EndingEngine):
    """An engine with both images, whose containers write `report`."""

    def __init__(self) -> None:
        super().__init__(self._leave)
        self.info: dict[str, Any] = ABLE
        self.images = list(IMAGES)
        self.report: dict[str, Any] | None = report("ok", "slow", "skipped")
        self.refusal = ""
        self.client.info.side_effect = lambda: self.info
        self.client.version.return_value = {"Version": "29.0"}
        self.client.images.get.side_effect = self._image

    def _image(self, name: str) -> MagicMock:
        if name not in self.images:
            raise ImageNotFound(name)
        return MagicMock(id=name)

    def _leave(self, mounts: dict[str, Path]) -> None:
        if self.refusal:
            raise APIError("failed", explanation=self.refusal)
        if self.report is not None:
            (mounts["/check"] / "report.json").write_text(json.dumps(self.report))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Engine:
    made = Engine()
    monkeypatch.setattr(gpu_check, "connect", lambda: made.client)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(cleanup, "scratch_root", lambda: tmp_path / "scratch")
    return made


def test_gpu_check_runs_both_images_and_writes_one_report(engine: Engine, tmp_path: Path) -> None:
    engine.printed = b"check  measured\n"
    logged: list[str] = []
    target = tmp_path / "out" / "gpu-check.json"
    assert gpu_check.measure_gpus("cu130", target, log=logged.append, say=str)
    assert logged == ["check  measured"] * 2
    written = json.loads(target.read_text())
    assert sorted(written) == ["command", "date", "engine", "images", "kit", "machine"]
    assert written["images"] == dict.fromkeys(IMAGES, engine.report)
    for image, made in zip(IMAGES, engine.created, strict=True):
        assert made["image"] == image
        assert [*made["entrypoint"], *made["command"]] == [
            *("python", "-P", "-m", "berth.runtime.gpu.bench.check"),
            *("--json", "/check/report.json"),
        ]
        assert made["device_requests"] == [{**made["device_requests"][0], "Count": -1, "Capabilities": [["gpu"]]}]
        assert (made["network_mode"], made["shm_size"]) == ("none", "1g")
        assert "network" not in made
        assert made["labels"]["berth.kit"] == "run"
    engine.client.networks.create.assert_not_called()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_gpu_check_fails_if_a_check_failed(engine: Engine, tmp_path: Path) -> None:
    engine.report, engine.code = report("ok", "failed"), 1
    assert not gpu_check.measure_gpus("cu130", tmp_path / "gpu-check.json", log=str, say=str)
    assert (tmp_path / "gpu-check.json").exists()


def test_make_gpu_check_passes_the_profile() -> None:
    for words, profile in (((), "cu130"), (("GPU_PROFILE=cu124",), "cu124")):
        command = ["make", "--dry-run", "--no-print-directory", "gpu-check", *words]
        done = subprocess.run(command, cwd=pins.ROOT, capture_output=True, text=True, check=True)
        assert f"build.py gpu-check --profile {profile} --json out/gpu-check.json" in done.stdout


@pytest.mark.parametrize(
    ("state", "profile", "sentence"),
    [
        pytest.param(
            {"info": {"Runtimes": {"runc": {}}}, "images": []},
            "cu130",
            "This engine has no NVIDIA runtime, so it can't pass a GPU on: install nvidia-container-toolkit, run "
            "`sudo nvidia-ctk runtime configure --runtime=docker` and restart the engine, or run `python "
            "bench/gpu.py`, which needs no Docker.",
            id="no-runtime-and-no-images",
        ),
        pytest.param(
            {"images": IMAGES[:1]},
            "cu130",
            "there is no image berth-serve:cu130 here: build it with `python build.py build serve --profile cu130`.",
            id="missing-image",
        ),
        pytest.param(
            {},
            "cpu",
            "The images of profile cpu have no CUDA and use no GPU: choose --profile cu130 or cu124.",
            id="profile-without-cuda",
        ),
        pytest.param(
            {"refusal": "nvidia-container-cli: nvml error: driver not loaded"},
            "cu130",
            "from berth-train:cu130: nvidia-container-cli: nvml error: driver not loaded: "
            "run this on a machine where `nvidia-smi` lists a GPU whose driver answers.",
            id="no-driver",
        ),
        pytest.param(
            {"report": None, "code": 1, "printed": "berth: all-reduce\nberth: error: no GPU: run this …\n".encode()},
            "cu130",
            "The check in berth-train:cu130 ended with exit code 1 and no result: no GPU: run this …",
            id="no-result",
        ),
    ],
)
def test_check_that_gives_no_report_is_an_error(
    state: dict[str, Any], profile: str, sentence: str, engine: Engine, tmp_path: Path
) -> None:
    vars(engine).update(state)
    with pytest.raises(UserError) as refusal:
        gpu_check.measure_gpus(profile, tmp_path / "gpu-check.json", log=str, say=str)
    assert str(refusal.value).endswith(sentence)
    assert not (tmp_path / "gpu-check.json").exists()
    assert [each["image"] for each in engine.created] == IMAGES[: bool({"refusal", "report"} & state.keys())]
