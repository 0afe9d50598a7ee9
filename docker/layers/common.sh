#!/bin/sh
# Sourced by every step: the versions of its layer, network settings, and functions that several steps call.
# The settings are BuildKit secrets, mounted only while a step runs, so they never get into a layer. If one is missing, the
# tool uses its defaults.

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

# Seconds without data after which uv and pip retry. A connection may break silently; but a company's index that first
# fetches the whole wheel itself also sends nothing for a while.
export UV_HTTP_TIMEOUT=120 PIP_DEFAULT_TIMEOUT=120

# A fixed time that tools write into files, such as the day of a new user in /etc/shadow.
export SOURCE_DATE_EPOCH=1767225600

# /tmp is a tmpfs, so caches vanish when the step ends. Only bytecode.py makes bytecode.
export XDG_CACHE_HOME=/tmp/cache PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1

export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

fail() {
    echo "berth: error: $1" >&2
    exit 1
}

# apt-get with a mirror's sources if they are for this base: Debian's sources would break an Ubuntu base.
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

# install_locked: exactly the files whose hashes are in the layer's lock, from docker/wheels or the index.
install_locked() {
    # Any index may serve a file (unsafe-best-match), because hashes are checked; torch's index also has old versions of
    # other packages. No cache: uv does not hash unpacked files again, so changed ones would get into the image. uv's
    # temporary folder is in the layer, so that files are linked, not copied; it is removed before the step ends.
    unpacked=$(mktemp -d /opt/uv.XXXXXX)
    # Wheels only: a source package would be built here with tools that no lock has.
    TMPDIR=$unpacked /tmp/tools/uv pip install --no-cache --python /opt/berth/bin/python --no-deps --require-hashes \
        --only-binary :all: --find-links /tmp/layer/wheels --index-strategy unsafe-best-match --link-mode hardlink \
        --no-progress --requirement /tmp/layer/lock.txt ||
        fail "the packages of this layer can't be installed: uv says why above. A network with an index, a proxy or certificates of its own needs the secrets uv and ca: build.py gives them, and docker/README.md has the options of docker build."
    rm -rf "$unpacked"
}

# install_wheels FILE...: wheels that an earlier stage built or checked.
install_wheels() {
    /tmp/tools/uv pip install --no-cache --python /opt/berth/bin/python --no-deps --no-index --link-mode copy --no-progress "$@"
}

# forget_uv_notes FOLDER: removes uv's records of wheels' times, which differ from build to build.
forget_uv_notes() {
    find "$1" -maxdepth 2 -name uv_cache.json | while read -r note; do
        sed -i '/\/uv_cache\.json,/d' "${note%/*}/RECORD" && rm "$note"
    done
}
