#!/bin/sh
# Makes a Debian 12 base image of the package archive, where no image registry can be reached: the slim set of packages,
# without documentation, imported into the engine as TAG.
# Usage: base.sh TAG [MIRROR]      needs root and mmdebstrap (installed here if apt can); the engine must answer
set -eu
tag=${1:?usage: base.sh TAG [MIRROR]}
mirror=${2:-http://deb.debian.org/debian}
docker=${DOCKER:-docker}

if [ "$(id -u)" -ne 0 ]; then
    echo "berth error: making a base image of the package archive needs root: run 'sudo docker/base.sh $tag', or pull a Debian 12 image and give it as --base-image." >&2
    exit 1
fi
if ! command -v mmdebstrap >/dev/null; then
    echo "base: installing mmdebstrap" >&2
    export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
    if ! { apt-get update -qq && apt-get install -qq --yes --no-install-recommends mmdebstrap >/dev/null; }; then
        echo "berth error: mmdebstrap can't be installed: run 'apt-get install mmdebstrap' on a Debian or Ubuntu machine, or give --base-image an image that the engine has." >&2
        exit 1
    fi
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "base: Debian 12 from $(echo "$mirror" | sed 's|//[^/@]*@|//|'), about half a minute" >&2
# usr-is-merged instead of usrmerge, which would bring all of Perl.
mmdebstrap --quiet --variant=minbase --architectures=amd64 --include=usr-is-merged \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$folder/base.tar" "$mirror" >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    echo "berth error: the Debian base could not be made of $(echo "$mirror" | sed 's|//[^/@]*@|//|'): see the lines above, and check that this machine reaches its package archive." >&2
    exit 1
}
"$docker" import --platform linux/amd64 --change 'LABEL berth.kit=base' "$folder/base.tar" "$tag"
