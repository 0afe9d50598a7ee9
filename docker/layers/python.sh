#!/bin/sh
# Layer python: the base's or the archive's Python, and an empty environment, /opt/berth, first on PATH.
# Usage: python.sh VERSION
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/tools/network.sh
version=$1

ID=unknown ID_LIKE='' PRETTY_NAME='of an unknown kind'
if [ -r /etc/os-release ]; then
    # shellcheck source=/dev/null
    . /etc/os-release
fi
case " $ID $ID_LIKE " in
*" debian "* | *" ubuntu "*) ;;
*)
    echo "berth: error: the base image is $PRETTY_NAME; give --base-image a Debian or Ubuntu image that has Python $version." >&2
    exit 1
    ;;
esac

set -- ca-certificates
command -v "python$version" >/dev/null || set -- "$@" "python$version"
if ! install_debian "$@"; then
    echo "berth: error: $* can't be installed on $PRETTY_NAME; give --base-image an image that has Python $version, such as Debian 12, or fix what apt says of the network." >&2
    exit 1
fi

"python$version" -m venv --without-pip /opt/berth
# The package compiles all of the standard library, with times that differ from build to build.
find /usr/lib /usr/share -depth -name __pycache__ -exec rm -rf {} +
/opt/berth/bin/python /tmp/tools/bytecode.py asyncio ctypes email http.client logging sqlite3 ssl tarfile unittest.mock
