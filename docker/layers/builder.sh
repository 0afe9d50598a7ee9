#!/bin/sh
# Stage builder, which no image keeps: a C compiler and the tools that make and install wheels, in /opt/build.
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/layers/network.sh

install_debian gcc libc6-dev python3-pip python3-venv "python${1}-dev"
"python$1" -m venv /opt/build
/opt/build/bin/pip install --quiet --require-hashes --requirement /tmp/locks/build.txt
/opt/build/bin/uv --version
