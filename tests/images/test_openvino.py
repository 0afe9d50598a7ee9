"""The pruned OpenVINO in the images works and sends no telemetry."""

import json
from pathlib import Path

import docker
import pytest
from docker.models.images import Image
from docker.types import Mount
from testinfra.host import Host

from berth.images.pins import pins

SITE = Path("/opt/berth/lib/python3.11/site-packages")
# The name under which OpenVINO imports its telemetry.
TELEMETRY = "openvino_telemetry"
PROGRAM = """
import json
import openvino, openvino.tools.ovc.convert_impl, torch

model = torch.nn.Sequential(torch.nn.Embedding(99, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)).eval()
graph = openvino.convert_model(model, example_input=torch.ones(2, 3, dtype=torch.int64))
openvino.save_model(graph, "/tmp/graph.xml", compress_to_fp16=False)
core = openvino.Core()
settings = {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False}
compiled = core.compile_model(core.read_model("/tmp/graph.xml"), "CPU", settings)
tokens = torch.arange(20).reshape(4, 5)  # another shape than the example's
found = torch.from_numpy(compiled(tokens.numpy())[0])
print(json.dumps({
    "version": openvino.__version__.partition("-")[0],
    "devices": core.available_devices,
    "as_torch": torch.allclose(found, model(tokens), atol=1e-4),
    "telemetry": openvino.tools.ovc.convert_impl.tm.__name__,
}))
"""
# The images' NNCF must quantise without sending telemetry. tests/unit/runtime/engines measure the quantised model.
QUANTISING = """
import json
import nncf, numpy, openvino, torch

model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
graph = openvino.convert_model(model, example_input=torch.ones(2, 8))
rows = [numpy.random.default_rng(0).normal(size=(1, 8)).astype("float32") for _ in range(9)]
int8 = nncf.quantize(graph, nncf.Dataset(rows), subset_size=9)
print(json.dumps({
    "version": nncf.__version__,
    "quantised": any(node.get_type_name() == "FakeQuantize" for node in int8.get_ops()),
    "telemetry": type(nncf.telemetry.wrapper.telemetry).__module__,
}))
"""
# Counts packets sent on all interfaces, including loopback, where name servers may be. This covers every process and
# library, also those that Python does not see.
WATCHED = """
set -eu
unset CI  # the telemetry is off if this is set
sent() { echo $(($(cat /sys/class/net/*/statistics/tx_packets | paste -sd+))); }
sent
python -c "$PROGRAM"
sleep 2  # for requests of a child process
sent
python -c 'import socket; socket.getaddrinfo("control.invalid", 443)' 2>/dev/null || true
sent
"""
# A double of the omitted telemetry: each of its calls looks up a name.
DOUBLE = """
import socket

class Telemetry:
    def __init__(self, *_, **__): pass
    def send_event(self, *_, **__):
        try: socket.getaddrinfo("telemetry.invalid", 443)
        except OSError: pass
    start_session = end_session = send_error = send_stack_trace = force_shutdown = send_event
"""


@pytest.fixture
def has_openvino(image: Image, profile: pins.Profile) -> Image:
    """An image with OpenVINO; skips the inference images with CUDA, which have none."""
    if profile.openvino(image.labels["berth.kit"]) == pins.NONE:
        pytest.skip(f"the image {image.labels['berth.kit']} of {profile.name} has no OpenVINO; another test checks it")
    return image


def watched(
    client: docker.DockerClient, image: Image, *mounts: Mount, program: str = PROGRAM
) -> tuple[dict[str, object], int, int]:
    """Runs a program in a container with a network; returns its result, the packets sent meanwhile, and those of one
    name lookup after it. The name server is the container itself, so no lookup leaves this machine.
    """
    output = client.containers.run(
        image.id,
        ["-c", WATCHED],
        entrypoint=["bash"],
        environment={"PROGRAM": program},
        network_mode="bridge",
        dns=["127.0.0.1"],
        nano_cpus=1_500_000_000,
        mounts=list(mounts),
        remove=True,
    )
    before, *printed, after, control = output.decode().splitlines()
    return json.loads(printed[-1]), int(after) - int(before), int(control) - int(after)


@pytest.mark.kits_own
def test_openvino_converts_and_runs_without_telemetry(
    has_openvino: Image, client: docker.DockerClient, profile: pins.Profile
) -> None:
    found, sent, control = watched(client, has_openvino)
    assert found == {
        "version": profile.packages["openvino"],
        "devices": ["CPU"],
        "as_torch": True,
        "telemetry": "openvino.tools.ovc.telemetry_stub",
    }
    assert control > 0, "the counter must see a lookup"
    assert sent == 0


@pytest.mark.kits_own
def test_nncf_quantises_without_telemetry(
    has_openvino: Image, client: docker.DockerClient, profile: pins.Profile
) -> None:
    if has_openvino.labels["berth.kit"] != "train":
        pytest.skip("NNCF is in the training image")
    found, sent, control = watched(client, has_openvino, program=QUANTISING)
    assert found == {"version": profile.packages["nncf"], "quantised": True, "telemetry": "unittest.mock"}
    assert control > 0, "the counter must see a lookup"
    assert sent == 0


@pytest.mark.kits_own
def test_sent_telemetry_would_be_counted(has_openvino: Image, client: docker.DockerClient, tmp_path: Path) -> None:
    package = tmp_path / TELEMETRY
    (package / "backend").mkdir(parents=True)
    (package / "__init__.py").write_text(DOUBLE)
    (package / "backend" / "__init__.py").write_text("backend_ga4 = None\n")
    mount = Mount(str(SITE / TELEMETRY), str(package), type="bind", read_only=True)
    found, sent, _ = watched(client, has_openvino, mount)
    assert found["telemetry"] == TELEMETRY
    assert sent > 0


@pytest.mark.kits_own
def test_no_package_requires_the_telemetry(either: Host) -> None:
    """Otherwise pip would install it for a job whose requirements include openvino."""
    listing = "import importlib.metadata as m; print([r for d in m.distributions() for r in d.requires or ()])"
    requirements = either.check_output(f"timeout 60 python -c '{listing}'")
    assert "numpy" in requirements
    assert TELEMETRY.replace("_", "-") not in requirements
    assert either.run(f"python -c 'import {TELEMETRY}'").rc != 0


@pytest.mark.kits_own
def test_cuda_inference_image_has_no_openvino(serve: Host, profile: pins.Profile) -> None:
    assert (serve.run("timeout 60 python -c 'import openvino'").rc == 0) == (not profile.cuda)
