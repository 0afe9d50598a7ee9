#!/bin/sh
# Stage builder, which no image keeps: a C compiler and the tools that make and install wheels, in /opt/build.
# Usage: builder.sh VERSION
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/layers/network.sh
version=$1
# The one that the environment was made with.
python=$(readlink -f "/opt/berth/bin/python$version")

set -- gcc libc6-dev
# A base that brings a Python of its own, beside the archive's, brings its headers and its ensurepip as well.
case $python in /usr/bin/*) set -- "$@" "python$version-dev" "python$version-venv" ;; esac
install_debian "$@"
"$python" -m venv /opt/build
/opt/build/bin/pip install --quiet --require-hashes --requirement /tmp/locks/build.txt
/opt/build/bin/uv --version
