#!/bin/sh
# Layer system: what a software set wants of Debian's packages; empty for none.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ "$DEBIAN" = none ]; then
    exit 0
fi
# shellcheck disable=SC2086
install_debian $DEBIAN ||
    fail "$DEBIAN can't be installed: see what apt says above, and write names of this base's packages into \`debian\` of the software set."
# Scripts call them by their own names, which the packages of ours have.
for each in $DEBIAN; do
    ! command -v "$each" >/dev/null || "$each" --version
done
