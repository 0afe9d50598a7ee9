# A plain image for bench/image_size.py and bench/serve.py: packages as people install them, on berth's base image.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG APT_PACKAGES
ARG PIP_PACKAGES
ENV PIP_BREAK_SYSTEM_PACKAGES=1
# Java's package fails without the folder of man pages, which slim Debian lacks (https://bugs.debian.org/863199).
# hadolint ignore=DL3008,SC2086
RUN --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=pip --mount=type=secret,id=apt --mount=type=secret,id=apt-auth \
    --mount=type=secret,id=apt-sources --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    if [ -f /run/secrets/apt ]; then export APT_CONFIG=/run/secrets/apt; fi; \
    if [ -f /run/secrets/apt-sources ]; then cp /run/secrets/apt-sources /etc/apt/sources.list; fi; \
    mkdir -p /usr/share/man/man1; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends ${APT_PACKAGES} \
    && rm -rf /var/lib/apt/lists/*
# hadolint ignore=DL3013,DL3042,SC2086
RUN --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=pip --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    if [ -f /run/secrets/pip ]; then export PIP_CONFIG_FILE=/run/secrets/pip; fi; \
    pip install --no-cache-dir --find-links /tmp/wheels ${PIP_PACKAGES}
