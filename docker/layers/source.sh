#!/bin/sh
# Stage source, which no image keeps: wheels, in /built, of the packages that PyPI has as source only.
# Usage: source.sh
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/tools/network.sh

# Debug symbols hold the name of the folder that pip compiles in, another one in every build.
export CFLAGS=-g0
/opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --find-links /tmp/wheels \
    --require-hashes --requirement /tmp/lock.txt --wheel-dir /built
ls /built
