#!/bin/sh
# Makes sure that a Docker engine answers. If none does, installs docker.io with apt, as root, and starts its daemon; on
# other machines, or without root, prints what to do.
set -eu

answers() {
    for client in /usr/bin/docker docker; do
        if command -v "$client" >/dev/null && "$client" version --format '{{.Server.Version}}' >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}

if answers; then
    exit 0
fi
if [ -n "${DOCKER_HOST:-}" ]; then
    echo "berth: error: no Docker engine answers at DOCKER_HOST=$DOCKER_HOST: start it, or unset DOCKER_HOST to use this machine's." >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "berth: error: no Docker engine answers: start it ('sudo systemctl start docker'), install it ('sudo apt-get install docker.io'), or join its group ('sudo usermod -aG docker $(id -un)', then log in again)." >&2
    exit 1
fi
if ! command -v dockerd >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        echo "berth: error: no Docker engine answers, and this machine has no apt-get to install one: install Docker Engine 20.10 or newer, see https://docs.docker.com/engine/install/." >&2
        exit 1
    fi
    echo "engine: no Docker engine answers; installing Debian's docker.io" >&2
    export DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes
    apt-get update -qq || true
    set -- docker.io iptables
    # Since version 23 the client needs this plugin to build with BuildKit; Debian 12's 20.10 has no such package.
    if apt-cache show docker-buildx >/dev/null 2>&1; then
        set -- "$@" docker-buildx
    fi
    if ! apt-get install -qq --yes --no-install-recommends "$@" >/dev/null; then
        echo "berth: error: docker.io can't be installed: see above what apt says, or install Docker Engine 20.10 or newer by hand." >&2
        exit 1
    fi
fi

if [ -d /run/systemd/system ]; then
    echo "engine: starting docker.service" >&2
    systemctl start docker
else
    echo "engine: starting dockerd; its log is /var/log/dockerd.log" >&2
    # A killed daemon leaves its pid file, and the next one then refuses to start: even if that process is dead, a zombie, or
    # another program with that id.
    if [ -f /var/run/docker.pid ]; then
        process=/proc/$(cat /var/run/docker.pid)
        if ! grep -qs dockerd "$process/comm" || grep -qs '^State:.Z' "$process/status"; then
            rm -f /var/run/docker.pid
        fi
    fi
    setsid dockerd >/var/log/dockerd.log 2>&1 </dev/null &
fi
waited=0
until answers; do
    waited=$((waited + 1))
    if [ "$waited" -gt 60 ]; then
        tail -n 5 /var/log/dockerd.log >&2 2>/dev/null || true
        echo "berth: error: the Docker engine did not answer within 60 s of its start: see the lines above and /var/log/dockerd.log." >&2
        exit 1
    fi
    sleep 1
done
echo "engine: up" >&2
