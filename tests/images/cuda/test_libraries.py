"""CUDA, cuDNN and NCCL in the images: pinned versions, and one copy of each, which every program finds."""

import json
import re
from collections.abc import Callable

import docker
from docker.models.images import Image

from berth.images.inspect.size import image_size
from berth.images.pins import pins

Python = Callable[..., str]

VERSIONS = """
import ctypes, json, torch, triton

def number(library, call):
    value = ctypes.c_int()
    assert getattr(ctypes.CDLL(library), call)(ctypes.byref(value)) == 0
    return value.value

cudnn = ctypes.CDLL("libcudnn.so.9").cudnnGetVersion
cudnn.restype = ctypes.c_size_t
print(json.dumps({
    "cuda": number("libcudart.so", "cudaRuntimeGetVersion"),
    "nccl": number("libnccl.so.2", "ncclGetVersion"),
    "cudnn": cudnn(),
    "torch": [torch.version.cuda, ".".join(map(str, torch.cuda.nccl.version())), torch.backends.cudnn.version()],
    "triton": triton.__version__,
}))
"""


def test_labels_have_the_pinned_versions(image: Image, profile: pins.Profile) -> None:
    for part in ("cuda", "cudnn", "nccl"):
        assert image.labels[f"berth.{part}"] == profile.cuda[part]
    versions = {file.version for file in profile.files.values()}
    for part in pins.FILE_PARTS[image.labels["berth.kit"]]:
        # No label if the build omitted the part, because AWS's files are not available everywhere.
        assert image.labels.get(f"berth.{part}", pins.NONE) in {pins.NONE, *versions}


def test_libraries_report_the_pinned_versions(python: Python, profile: pins.Profile) -> None:
    found = json.loads(python(VERSIONS))

    def parts(text: str) -> list[int]:
        return [int(part) for part in f"{text}.0.0".split(".")[:3]]

    cuda, cudnn, nccl = (parts(profile.cuda[part]) for part in ("cuda", "cudnn", "nccl"))
    assert found["cuda"] == cuda[0] * 1000 + cuda[1] * 10
    assert found["cudnn"] == cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2]
    assert found["nccl"] == nccl[0] * 10000 + nccl[1] * 100 + nccl[2]
    assert found["torch"] == [f"{cuda[0]}.{cuda[1]}", profile.cuda["nccl"], found["cudnn"]]
    assert found["triton"] == profile.cuda["triton"]


ONE_COPY = """
import ctypes, json, os, re, subprocess
listed = subprocess.check_output(["/sbin/ldconfig", "-p"], text=True)
names = re.findall(r"^\\s+(\\S+) \\(.*\\) => /opt/berth/\\S+$", listed, re.M)
import torch
for name in names:
    ctypes.CDLL(name)
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "/lib" in line and ".so" in line}
files = {}
for folder, _, entries in os.walk("/", followlinks=False):
    if folder.startswith(("/proc", "/sys")):
        continue
    for name in entries:
        path = os.path.join(folder, name)
        if re.match(r"lib(cu|nv|nccl)[A-Za-z_]*.*\\.so", name) and not os.path.islink(path):
            files.setdefault(re.sub(r"(-[0-9a-f]{8})?\\.so.*", "", name), []).append(path)
print(json.dumps({"names": names, "loaded": sorted(loaded), "files": files}))
"""


def test_each_cuda_library_has_one_copy(python: Python) -> None:
    report = json.loads(python(ONE_COPY))
    more_than_one = {name: paths for name, paths in report["files"].items() if len(paths) > 1}
    assert not more_than_one
    stems = {re.sub(r"\.so.*", "", path.rpartition("/")[2]): path for path in report["loaded"]}
    for library in (
        "libcudart",
        "libcublas",
        "libcublasLt",
        "libcudnn",
        "libnccl",
        "libcufft",
        "libcusparse",
        "libnvrtc",
    ):
        assert stems[library] == report["files"][library][0], library
        assert any(name.startswith(f"{library}.so") for name in report["names"]), f"{library} is unknown to ldconfig"


UNRESOLVED = """
import json, os, subprocess
missing = {}
for top in ("/opt", "/usr", "/lib"):
    for folder, _, names in os.walk(top, followlinks=False):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not (".so" in name or os.access(path, os.X_OK)):
                continue
            with open(path, "rb") as file:
                if file.read(4) != b"\\x7fELF":
                    continue
            listing = subprocess.run(["ldd", path], capture_output=True, text=True)
            for line in listing.stdout.splitlines():
                if "not found" in line:
                    missing.setdefault(line.split()[0], []).append(path)
print(json.dumps(missing))
"""


def test_shared_objects_miss_only_the_driver(python: Python) -> None:
    """The driver's libraries come from the host, with NVIDIA's runtime."""
    missing = json.loads(python(UNRESOLVED))
    # Libraries that are already loaded: MPI's for mpi4py, one of scipy's for another, and torch's for torchvision.
    loaded_before = {"libmpi.so.40": "/mpi4py/MPI.openmpi.", "libquadmath-": "/scipy.libs/libgfortran-"}
    loaded_before |= dict.fromkeys(("libc10", "libtorch"), "/torchvision/_C.so")
    for name, paths in missing.items():
        known = next((place for start, place in loaded_before.items() if name.startswith(start)), None)
        driver = name in ("libcuda.so.1", "libnvidia-ml.so.1")
        assert driver or (known and all(known in path for path in paths)), missing


def test_environment_and_nccl_conf(image: Image, python: Python) -> None:
    environment = dict(line.split("=", 1) for line in image.attrs["Config"]["Env"])
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert python("print(open('/etc/nccl.conf').read())") == "NCCL_SHM_USE_CUDA_MEMCPY=1"
    obsolete = ("FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "RDMAV_FORK_SAFE", "LD_LIBRARY_PATH", "LD_PRELOAD")
    assert not [name for name in environment if name.startswith("NCCL_") or name in obsolete]
    if image.labels["berth.kit"] == "train":
        assert environment["FI_EFA_USE_HUGE_PAGE"] == "0"


def test_nccl_reads_nccl_conf(python: Python) -> None:
    """Without a GPU, NCCL still finds an interface and makes a communicator's ID."""
    program = (
        "import ctypes, torch; uid = ctypes.create_string_buffer(128);"
        "print('code', ctypes.CDLL('libnccl.so.2').ncclGetUniqueId(uid), len(uid.raw.strip(b'\\0')) > 0)"
    )
    found = python(program, before="echo NCCL_DEBUG=INFO >>/etc/nccl.conf", NCCL_SOCKET_IFNAME="lo")
    assert "code 0 True" in found
    assert re.search(r"NCCL INFO .*lo:127\.0\.0\.1", found), found


def test_largest_layer_is_below_1_5_gb(image: Image, client: docker.DockerClient, profile: pins.Profile) -> None:
    measured = image_size(client, f"berth-{image.labels['berth.kit']}:{profile.name}")
    largest = max(measured.layers, key=lambda layer: layer.compressed)
    assert largest.compressed <= 1.5e9, largest
