#!/bin/sh
# What no image needs at run time, each with its reason. SageMaker pulls the image for every job: bytes are minutes.
# Ends each layer that installs packages, for a later layer can't make an earlier one smaller.
set -eu
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

because "torch's headers and CMake files: to compile against it takes a compiler, and no image has one" \
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
in_packages "test suites of libraries" \
    "pandas scipy numpy sympy networkx pyarrow gevent greenlet zope mpi4py psutil" -type d -name tests
in_packages "headers and sources of what is compiled already" "pyarrow gevent greenlet numpy scipy pandas" \
    -type f \( -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.a' \)
in_packages "static libraries" torch -type f -name '*.a'
