#!/bin/sh
# Stage source, which no image contains: builds wheels, in /built, of packages that PyPI has only as source.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ ! -f /tmp/layer/lock.txt ]; then
    fail "this profile has no $IMAGE image, because its software set is for the other image only: choose the other target or another profile."
fi

# Debug symbols would contain the random name of pip's build folder.
export CFLAGS=-g0
/opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --find-links /tmp/layer/wheels \
    --require-hashes --requirement /tmp/layer/lock.txt --wheel-dir /built
ls /built
