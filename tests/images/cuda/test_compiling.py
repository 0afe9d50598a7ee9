"""torch.compile's needs in the images, as far as they can be tested without a GPU."""

import json
from collections.abc import Callable

from berth.images.pins import pins

Python = Callable[..., str]

# Runs Triton's compiler from Python to machine code of a GPU. Its interface differs between the profiles' versions.
KERNEL = """
import importlib.util, json, sys
open("/tmp/kernels.py", "w").write('''
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
''')
sys.path.insert(0, "/tmp")
import triton, kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

names = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
if triton.__version__.startswith("3.1."):
    source = ASTSource(fn=kernels.add, signature=dict(enumerate(names.values())), constants={4: 128})
else:
    source = ASTSource(fn=kernels.add, signature={**names, "BLOCK": "constexpr"}, constexprs={(4,): 128})
sizes = {}
for chip in map(int, sys.argv[1:]):
    compiled = triton.compile(source, target=GPUTarget("cuda", chip, 32))
    assert compiled.asm["cubin"][:4] == b"\\x7fELF"
    sizes[chip] = len(compiled.asm["ptx"])
print(json.dumps(sizes))
"""
CHIPS = {"cu130": ("75", "80", "86", "89", "90", "100", "120"), "cu124": ("70", "75", "80", "86", "89", "90")}


def test_triton_compiles_for_every_chip_of_the_profile(python: Python, profile: pins.Profile) -> None:
    sizes = json.loads(python(KERNEL, *CHIPS[profile.name]).splitlines()[-1])
    assert sorted(sizes) == sorted(CHIPS[profile.name])
    assert min(sizes.values()) > 500


LAUNCHER = """
import os, subprocess, sys
empty = ["-xc", "/dev/null", "-shared", "-Wl,-soname,libcuda.so.1"]
for name in ("libcuda.so.1", "libcuda.so"):
    subprocess.run(["gcc", *empty, "-o", f"/tmp/{name}"], check=True)
os.environ["TRITON_LIBCUDA_PATH"] = "/tmp"
import triton.backends.nvidia.driver as driver
from triton.runtime.build import _build
libraries, folders = driver.libraries, ["/tmp"]
include = driver.include_dir if hasattr(driver, "include_dir") else driver.include_dirs
source = os.path.join(os.path.dirname(driver.__file__), "driver.c")
more = ([],) if "ccflags" in _build.__code__.co_varnames else ()
made = _build("cuda_utils", source, "/tmp", folders, include, libraries, *more)
print(os.path.getsize(made) > 10_000)
"""


def test_triton_launcher_compiles_with_the_images_compiler(python: Python) -> None:
    """An empty library replaces the host's driver, the only missing part."""
    assert python(LAUNCHER).splitlines()[-1] == "True"


STEP = """
import torch
torch.manual_seed(0)
model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
batch = torch.randn(2, 8, 32)
def step(forward):
    model.zero_grad()
    loss = forward(batch).square().mean()
    loss.backward()
    return loss.item(), sum(p.grad.norm().item() for p in model.parameters())
eager, traced = step(model), step(torch.compile(model, backend="aot_eager"))
print(all(abs(a - b) < 1e-4 * abs(a) for a, b in zip(eager, traced)))
"""


def test_torch_compile_traces_a_training_step(python: Python) -> None:
    """torch.compile without its last part: kernels for the CPU would need a C++ compiler."""
    assert python(STEP).splitlines()[-1] == "True"


def test_torch_has_nccl_gloo_and_the_profiles_chips(python: Python, profile: pins.Profile) -> None:
    program = (
        "import json, torch, torch.distributed as d;"
        "has = d.is_nccl_available(), d.is_gloo_available(), d.is_mpi_available();"
        "print(json.dumps([*has, torch._C._cuda_getArchFlags()]))"
    )
    nccl, gloo, mpi, chips = json.loads(python(program).splitlines()[-1])
    assert (nccl, gloo, mpi) == (True, True, False)
    # 8.9 runs code for 8.6.
    assert {f"sm_{chip}" for chip in CHIPS[profile.name]} - {"sm_89"} <= set(chips.split())


def test_pruned_files_and_other_compilers_are_missing(python: Python) -> None:
    program = """
import os, re, shutil
from pathlib import Path
site = Path("/opt/berth/lib/python3.11/site-packages")
left = [str(path) for folder in ("torch", "nvidia", "triton") for path in (site / folder).rglob("*")
        if re.search(r"\\.a$|nvrtc\\.alt|cusolverMg|nvperf|libproton|cupti_static", path.name)
        or path.match("nvidia/*/include")]
print(left, [shutil.which(name) for name in ("g++", "c++", "nvcc", "clang", "make", "ninja")],
      [str(path) for path in Path("/usr/lib/gcc").rglob("cc1plus")])
"""
    assert python(program) == f"[] {[None] * 6} []"
