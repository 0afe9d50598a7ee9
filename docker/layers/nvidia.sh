#!/bin/sh
# Layers cuda, math, cudnn and nccl: NVIDIA's libraries, from the wheels that torch's wheel requires, so that torch, the
# dynamic linker, NCCL's plugins and users' code all use the same copy. Empty for a profile without CUDA.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh
layer=$1

if [ "$VERSION" = none ]; then
    exit 0
fi
install_locked
if [ "$layer" = nccl ]; then
    sh /tmp/layer/prune.sh nvidia/nccl nvidia/nvshmem
else
    sh /tmp/layer/prune.sh
fi

site=$(echo /opt/berth/lib/python3*/site-packages)
find "$site/nvidia" -type d -name lib | sort >/etc/ld.so.conf.d/berth-nvidia.conf
# NCCL's plugin for EFA loads this name; without it, NCCL silently falls back to TCP.
for runtime in "$site"/nvidia/*/lib/libcudart.so.*; do
    ln -sf "$(basename "$runtime")" "${runtime%.so.*}.so"
done
if [ "$layer" = nccl ]; then
    # Has an effect only if GPUs communicate through shared memory, without NVLink and peer access (g5, g6).
    echo 'NCCL_SHM_USE_CUDA_MEMCPY=1' >/etc/nccl.conf
fi
ldconfig
rm -f /var/cache/ldconfig/aux-cache

/opt/berth/bin/python - "$layer" "$VERSION" <<'PY'
import ctypes
import sys
from pathlib import Path

layer, pinned = sys.argv[1:]
name = {"cuda": "libcudart.so", "math": None, "cudnn": "libcudnn.so.9", "nccl": "libnccl.so.2"}[layer]


def number(library: ctypes.CDLL) -> int:
    """The version that the library reports: 13000 for CUDA 13.0, 92000 for cuDNN 9.20.0, 22907 for NCCL 2.29.7."""
    if layer == "cudnn":
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return int(library.cudnnGetVersion())
    value = ctypes.c_int()
    call = library.cudaRuntimeGetVersion if layer == "cuda" else library.ncclGetVersion
    code = call(ctypes.byref(value))
    assert code == 0, f"{layer} answers error {code}"
    return value.value


if name is not None:
    first, second, third = (int(part) for part in f"{pinned}.0".split(".")[:3])
    expected = first * 1000 + second * 10 if layer == "cuda" else first * 10000 + second * 100 + third
    installed = number(ctypes.CDLL(name))
    assert installed == expected, f"pinned {layer} {pinned}, installed {installed}"
for library in sorted(Path("/opt/berth/lib").glob("python3*/site-packages/nvidia/*/lib/lib*.so.*")):
    ctypes.CDLL(str(library))
PY
