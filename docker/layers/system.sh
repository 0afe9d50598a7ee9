#!/bin/sh
# Layer system: what a software set wants of Debian's packages; empty for none.
# Usage: system.sh "PACKAGE..."|none
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/tools/network.sh
packages=$1

if [ "$packages" = none ]; then
    exit 0
fi
# shellcheck disable=SC2086
if ! install_debian $packages; then
    echo "berth: error: $packages can't be installed: see what apt says above, and write names of this base's packages into \`debian\` of the software set." >&2
    exit 1
fi
# Scripts call them by their own names, which the packages of ours have.
for each in $packages; do
    ! command -v "$each" >/dev/null || "$each" --version
done
