#!/bin/sh
# Stage builder, which no image contains: a C compiler and the tools that make wheels, in /opt/build. /opt/build/tools has
# the tools that other steps call, uv and strip, with the libraries that they load.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh
# The Python that the environment was made with.
interpreter=$(readlink -f "/opt/berth/bin/python$PYTHON")

set -- gcc libc6-dev
# A base with its own Python, outside /usr/bin, has headers and ensurepip too.
case $interpreter in /usr/bin/*) set -- "$@" "python$PYTHON-dev" "python$PYTHON-venv" ;; esac
install_debian "$@"
"$interpreter" -m venv /opt/build
/opt/build/bin/pip install --quiet --require-hashes --requirement /tmp/layer/lock.txt
mkdir /opt/build/tools
cp /opt/build/bin/uv "$(command -v strip)" /opt/build/tools
ldd /opt/build/tools/strip | awk '$3 ~ "^/" && $1 !~ "^libc[.]" { print $3 }' | xargs cp -t /opt/build/tools
LD_LIBRARY_PATH=/opt/build/tools /opt/build/tools/strip --version | head -n 1
/opt/build/tools/uv --version
