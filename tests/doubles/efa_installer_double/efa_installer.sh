#!/bin/sh
# A double of AWS's EFA installer. Like the real one it calls apt-get, copies files over the system (the folder `root`) and
# records its version. It accepts only the flags of a container build. tests/images/files packs and signs it.
set -eu
read -r version exit packages <settings
if [ "$*" != "-y --skip-kmod --skip-limit-conf --no-verify" ]; then
    echo "Error: unknown options: $*" >&2
    exit 2
fi
if [ "$exit" -ne 0 ]; then
    echo "Error: Failed to install packages." >&2
    exit "$exit"
fi
# It writes into the folder in which it was unpacked, as the real one may.
echo "$*" >flags
if [ -n "$packages" ]; then
    # shellcheck disable=SC2086
    apt-get install -y $packages
fi
cp -a root/. /
printf '# EFA installer version: %s\n# Debug packages installed: no\n' "$version" >/opt/amazon/efa_installed_packages
