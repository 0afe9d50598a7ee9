#!/bin/sh
# Layer compiler: the C compiler and Python's headers, with which Triton compiles a launcher for its kernels in every process
# that uses torch.compile; empty for a profile without Triton. Reduced to a third of Debian's gcc: C only, for Triton.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ "$TRITON" = none ]; then
    exit 0
fi
set -- gcc libc6-dev
# A base with its own Python, outside /usr/bin, has its headers too.
case $(readlink -f "/opt/berth/bin/python$PYTHON") in /usr/bin/*) set -- "$@" "libpython$PYTHON-dev" ;; esac
install_debian "$@"

gcc=$(dirname "$(gcc -print-libgcc-file-name)") libraries=/usr/lib/x86_64-linux-gnu
# Remove link time optimisation, sanitizers, coverage, other languages and static libraries; keep small ones, for -ldl etc.
rm -rf "$gcc/lto1" "$gcc/lto-wrapper" "$gcc/g++-mapper-server" "$gcc/plugin" \
    "$libraries"/lib*san.so* "$libraries"/libitm.so* "$libraries"/libquadmath.so* "$libraries"/libcc1.so* \
    "$libraries"/libgprofng.so* "$libraries"/gprofng /usr/bin/*gprof* /usr/bin/*gp-* /usr/bin/*gcov* /usr/bin/*dwp /usr/bin/*gold \
    /usr/bin/*lto-dump* /usr/lib/python3*/config-*
find "$gcc" "$libraries" -maxdepth 1 -name '*.a' -size +8k ! -name 'libgcc*.a' -delete
# Debian's Python has this inside; only programs that embed Python load it.
rm -f "$libraries"/libpython*.so*

backend=$(echo /opt/berth/lib/python3*/site-packages/triton/backends/nvidia)
headers=$(/opt/berth/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
# The driver's library comes from the host; an empty one replaces it here.
echo | gcc -xc -shared -Wl,-soname,libcuda.so.1 -o /tmp/libcuda.so.1 -
gcc "$backend/driver.c" -O3 -shared -fPIC -Wno-psabi -I"$backend/include" -I"$headers" -L/tmp -l:libcuda.so.1 -o /tmp/launcher.so
