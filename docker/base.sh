#!/bin/sh
# Makes a Debian 12 base image from the package archive, for networks without an image registry: the slim set of packages,
# without documentation, imported into the engine as TAG. Its sources.list has Debian's public archive, not the mirror.
# `python build.py base` calls it.
# Usage: base.sh TAG [SOURCES]     SOURCES: a file in the form of sources.list that names this network's mirror
#                                  needs root and mmdebstrap (installed here if apt can); the engine must answer
set -eu
tag=${1:?usage: base.sh TAG [SOURCES]}
sources=${2:-}
docker=${DOCKER:-docker}

if [ "$(id -u)" -ne 0 ]; then
    echo "berth: error: making a base image from the package archive needs root: run 'sudo sh docker/base.sh $tag', or pull a Debian 12 image and give it as --base-image." >&2
    exit 1
fi
if ! command -v mmdebstrap >/dev/null; then
    echo "base: installing mmdebstrap" >&2
    export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
    if ! { apt-get update -qq && apt-get install -qq --yes --no-install-recommends mmdebstrap >/dev/null; }; then
        echo "berth: error: mmdebstrap can't be installed: run 'apt-get install mmdebstrap' on a Debian or Ubuntu machine, or give --base-image an image that the engine has." >&2
        exit 1
    fi
fi

# A fixed time for all new files, so that the same archive gives the same base, byte by byte.
export SOURCE_DATE_EPOCH=1767225600
folder=$(mktemp -d)
# A shell that a signal ends does not run its EXIT trap without this second trap.
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

cat >"$folder/public" <<'END'
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://security.debian.org/debian-security bookworm-security main
END
sources=${sources:-$folder/public}
echo "base: Debian 12 from $(sed -n '1s|^deb \([a-z]*://\)\([^/ ]*@\)\{0,1\}\([^ ]*\).*|\1\3|p' "$sources"), about half a minute" >&2
# mmdebstrap copies this machine's host name and name servers; the hooks remove them. usr-is-merged replaces usrmerge, which
# would install all of Perl. The mirror's address, perhaps with a password, and this machine's passwords for archives exist
# only while packages are installed, and are removed before the image is made.
# shellcheck disable=SC2016 # $1 is for mmdebstrap's own shell: the folder of the new system
mmdebstrap --quiet --variant=minbase --architectures=amd64 --include=usr-is-merged \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --setup-hook='mkdir -p "$1/etc/apt/auth.conf.d"; cp /etc/apt/auth.conf /etc/apt/auth.conf.d/*.conf "$1/etc/apt/auth.conf.d/" 2>/dev/null || true' \
    --customize-hook='rm -f "$1/etc/hostname" "$1/etc/resolv.conf"' \
    --customize-hook='rm -rf "$1"/etc/apt/auth.conf.d/* "$1"/etc/apt/sources.list.d/*' \
    --customize-hook="cp '$folder/public' \"\$1/etc/apt/sources.list\"" \
    bookworm "$folder/base.tar" "$sources" >"$folder/log" 2>&1 || {
    sed 's|//[^/ ]*@|//|g' "$folder/log" | tail -n 20 >&2
    echo "berth: error: the Debian base could not be made: see the lines above, and check that this machine reaches its package archive." >&2
    exit 1
}
"$docker" import --platform linux/amd64 --change 'LABEL berth.kit=base' "$folder/base.tar" "$tag"
