#!/bin/sh
# Stage source, which no image keeps: wheels, in /built, of the packages that PyPI has as source only.
# Usage: source.sh IMAGE PROFILE
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/layers/network.sh

/opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --find-links "/tmp/wheels/$2" \
    --require-hashes --requirement "/tmp/locks/$1-$2.txt" --wheel-dir /built
ls /built
