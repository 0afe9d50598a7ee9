#!/bin/sh
# Layer compat: the libraries of a newer driver (NVIDIA's cuda-compat), which `train` and `serve` use where the host's own
# is too old for this image's CUDA, and only there: the dynamic linker does not know of them. Empty for a build without.
# Usage: compat.sh VERSION
set -eu
version=$1

if [ "$version" = none ]; then
    exit 0
fi
mkdir /usr/local/cuda-compat
cp -a /tmp/files/. /usr/local/cuda-compat
# It opens without a GPU; its answer to cuInit is for the host's start to hear.
if ! /opt/berth/bin/python -B -c 'import ctypes; ctypes.CDLL("/usr/local/cuda-compat/libcuda.so.1").cuDriverGetVersion'; then
    echo "berth: error: libcuda of cuda-compat $version can't be loaded: see the reason above, or build with --without cuda-compat." >&2
    exit 1
fi
