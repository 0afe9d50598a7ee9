#!/bin/sh
# Layer compat: the libraries of a newer driver (NVIDIA's cuda-compat), which `train` and `serve` use where the host's own
# is too old for this image's CUDA, and only there: the dynamic linker does not know of them. Empty for a build without.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ ! -f /tmp/files/VERSION ]; then
    exit 0
fi
mkdir /usr/local/cuda-compat
cp -a /tmp/files/lib*.so* /usr/local/cuda-compat
# It opens without a GPU; its answer to cuInit is for the host's start to hear.
if ! /opt/berth/bin/python -B -c 'import ctypes; ctypes.CDLL("/usr/local/cuda-compat/libcuda.so.1").cuDriverGetVersion'; then
    fail "libcuda of cuda-compat $(cat /tmp/files/VERSION) can't be loaded: see the reason above, or build with --without cuda-compat."
fi
