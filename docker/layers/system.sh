#!/bin/sh
# Layer system: Debian packages of the software set; empty if it has none.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ "$DEBIAN" = none ]; then
    exit 0
fi
# shellcheck disable=SC2086
install_debian $DEBIAN ||
    fail "$DEBIAN can't be installed: see what apt says above, and write names of this base's packages into \`debian\` of the software set."
# Check the commands that are named like their package.
for each in $DEBIAN; do
    ! command -v "$each" >/dev/null || "$each" --version
done
