#!/bin/sh
# Layer compat: the libraries of a newer driver (NVIDIA's cuda-compat). `train` and `serve` use them only if the host's driver
# is too old for this image's CUDA, so they are not in the dynamic linker's path. Empty without the file.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ ! -f /tmp/files/VERSION ]; then
    exit 0
fi
mkdir /usr/local/cuda-compat
cp -a /tmp/files/lib*.so* /usr/local/cuda-compat
# It can be loaded without a GPU; whether cuInit works is checked at the start on a host.
if ! /opt/berth/bin/python -B -c 'import ctypes; ctypes.CDLL("/usr/local/cuda-compat/libcuda.so.1").cuDriverGetVersion'; then
    fail "libcuda of cuda-compat $(cat /tmp/files/VERSION) can't be loaded: see the reason above, or build with --without cuda-compat."
fi
