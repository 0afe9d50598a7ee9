#!/bin/sh
# Sourced by every step: the versions of its layer, the network's settings, and what several steps do.
# The settings are BuildKit secrets, there only while a step runs, so nothing of them stays in a layer; a missing one
# leaves the tool's default.

if [ -f /tmp/layer/versions ]; then
    # shellcheck source=/dev/null
    . /tmp/layer/versions
fi

if [ -f /run/secrets/ca ]; then
    export SSL_CERT_FILE=/run/secrets/ca PIP_CERT=/run/secrets/ca
fi
if [ -f /run/secrets/uv ]; then
    export UV_CONFIG_FILE=/run/secrets/uv
fi
if [ -f /run/secrets/pip ]; then
    export PIP_CONFIG_FILE=/run/secrets/pip
fi
if [ -f /run/secrets/apt ]; then
    export APT_CONFIG=/run/secrets/apt
fi

# Seconds without a byte, after which uv and pip ask again, some times: a connection may break without a word, and a
# company's index that fetches a wheel whole before it passes it on is silent for a while.
export UV_HTTP_TIMEOUT=120 PIP_DEFAULT_TIMEOUT=120

# The moment that tools write into what they make, such as the day of a new user in /etc/shadow: the same in every build.
export SOURCE_DATE_EPOCH=1767225600

# /tmp is a tmpfs: caches are gone when the step ends. Bytecode is made by bytecode.py alone.
export XDG_CACHE_HOME=/tmp/cache PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1

export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

fail() {
    echo "berth: error: $1" >&2
    exit 1
}

# A mirror's sources, if they are for this base: Debian's sources would break an Ubuntu base.
apt_get() {
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release 2>/dev/null || true)
    if grep -qs " ${suite:-unknown}[ /-]" /run/secrets/apt-sources; then
        set -- -o Dir::Etc::SourceList=/run/secrets/apt-sources -o Dir::Etc::SourceParts=/dev/null "$@"
    fi
    apt-get "$@"
}

# install_debian PACKAGE...: from the archive, without recommended packages, leaving no lists, caches or logs.
install_debian() {
    apt_get update -qq &&
        apt_get install -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0 "$@" &&
        apt-get clean &&
        rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old \
            /var/log/apt /var/log/dpkg.log /var/log/alternatives.log
}

# install_locked: exactly the files whose hashes the layer's lock names, from docker/wheels first, then from the index.
install_locked() {
    # Any index may serve a file, because its hash decides: the index of torch also has old versions of other packages.
    # Without a cache, which uv keeps unpacked and does not hash again: what somebody changed in it would get into the
    # image. uv's temporary folder is in the layer, so that its files are linked, not copied, and gone before the step is.
    unpacked=$(mktemp -d /opt/uv.XXXXXX)
    # What an index has as source only would be built here, by tools that no lock names.
    TMPDIR=$unpacked /tmp/tools/uv pip install --no-cache --python /opt/berth/bin/python --no-deps --require-hashes \
        --only-binary :all: --find-links /tmp/layer/wheels --index-strategy unsafe-best-match --link-mode hardlink \
        --no-progress --requirement /tmp/layer/lock.txt ||
        fail "the packages of this layer can't be installed: uv says why above. A network with an index, a proxy or certificates of its own needs the secrets uv and ca: build.py gives them, and docker/README.md has the options of docker build."
    rm -rf "$unpacked"
}

# install_wheels FILE...: wheels that were made or checked by an earlier stage.
install_wheels() {
    /tmp/tools/uv pip install --no-cache --python /opt/berth/bin/python --no-deps --no-index --link-mode copy --no-progress "$@"
}

# forget_uv_notes FOLDER: uv's notes of when a wheel was written, which differ from build to build.
forget_uv_notes() {
    find "$1" -maxdepth 2 -name uv_cache.json | while read -r note; do
        sed -i '/\/uv_cache\.json,/d' "${note%/*}/RECORD" && rm "$note"
    done
}
