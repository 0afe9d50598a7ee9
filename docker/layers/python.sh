#!/bin/sh
# Layer python: the base's or the archive's Python, and an empty environment, /opt/berth, first on PATH.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

ID=unknown ID_LIKE='' PRETTY_NAME='of an unknown kind'
if [ -r /etc/os-release ]; then
    # shellcheck source=/dev/null
    . /etc/os-release
fi
case " $ID $ID_LIKE " in
*" debian "* | *" ubuntu "*) ;;
*)
    fail "the base image is $PRETTY_NAME; give --base-image a Debian or Ubuntu image that has Python $PYTHON (--build-arg BASE_IMAGE=…)."
    ;;
esac

set -- ca-certificates
command -v "python$PYTHON" >/dev/null || set -- "$@" "python$PYTHON"
install_debian "$@" ||
    fail "$* can't be installed on $PRETTY_NAME: fix the network error that apt prints above, or give --base-image an image that has Python $PYTHON, such as Debian 12."

"python$PYTHON" -m venv --without-pip /opt/berth
# Debian's package compiles the whole standard library, with times that differ from build to build.
find /usr/lib /usr/share -depth -name __pycache__ -exec rm -rf {} +
/opt/berth/bin/python /tmp/layer/bytecode.py asyncio ctypes email http.client logging sqlite3 ssl tarfile unittest.mock
