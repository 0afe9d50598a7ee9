# The training image of Amazon SageMaker: PyTorch, Open MPI, sagemaker-training and the kit's `train`.
#
#   base ── python ─┬─ pytorch ── openmpi ── deps ── train          the image: what changes least comes first
#                   └─ builder ─┬─ source ···········▲   ▲          thrown away: a compiler, wheels
#                               └─ kit ··················┘
#
# python    Debian's Python 3.11 and the environment /opt/berth
# pytorch   torch, of the profile's build; the same layer as in the inference image
# openmpi   mpirun, mpi4py and ssh between hosts
# deps      transformers, accelerate, datasets, sagemaker-training
# train     the packages berth.train and berth.qa
#
# Every step may use the secrets of a closed network (CA, uv, pip, apt); nothing of them stays in a layer. apt reads the CA
# as a user of its own, hence its mode. No syntax line: it would pull a frontend, and Docker 20.10's own knows all that is
# used here.

# The profile cpu of docker/pins.toml, rendered by `python build.py pins`.
# pins: begin
ARG BASE_IMAGE=debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
ARG PROFILE=cpu
ARG PYTHON=3.11
ARG TORCH=2.13.0+cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG OPENMPI=4.1.8
ARG TRANSFORMERS=5.23.0
# pins: end

FROM --platform=linux/amd64 ${BASE_IMAGE} AS base

FROM base AS python
ARG PYTHON
# A fixed PATH: SDK v3 replaces the entrypoint, and finds python, pip and mpirun by it.
ENV PATH=/opt/berth/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/bytecode.py,target=/tmp/layers/bytecode.py \
    --mount=type=bind,source=docker/layers/python.sh,target=/tmp/layers/python.sh \
    /tmp/layers/python.sh "${PYTHON}"

FROM python AS builder
ARG PYTHON
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/builder.sh,target=/tmp/layers/builder.sh \
    --mount=type=bind,source=docker/locks/build,target=/tmp/locks \
    /tmp/layers/builder.sh "${PYTHON}"

FROM builder AS source
ARG PROFILE
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/source.sh,target=/tmp/layers/source.sh \
    --mount=type=bind,source=docker/locks/source,target=/tmp/locks \
    --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    /tmp/layers/source.sh train "${PROFILE}"

FROM builder AS kit
WORKDIR /kit
COPY pyproject.toml LICENSE NOTICE ./
COPY train train
COPY qa qa
# One pyproject.toml names all of the kit's folders; those of the other image and of the host are empty here.
RUN mkdir -p ecr images local serve/engines \
    && /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /dist .

FROM python AS pytorch
ARG PROFILE
ARG TORCH
ARG TORCH_INDEX
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/prune.sh,target=/tmp/layers/prune.sh \
    --mount=type=bind,source=docker/layers/bytecode.py,target=/tmp/layers/bytecode.py \
    --mount=type=bind,source=docker/layers/pytorch.sh,target=/tmp/layers/pytorch.sh \
    --mount=type=bind,source=docker/locks/pytorch,target=/tmp/locks \
    --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    --mount=type=bind,from=builder,source=/opt/build/bin/uv,target=/usr/local/bin/uv \
    /tmp/layers/pytorch.sh "${PROFILE}" "${TORCH}" "${TORCH_INDEX}"

FROM pytorch AS openmpi
ARG PROFILE
ARG OPENMPI
# Where the wheel was unpacked: a program that calls MPI without mpirun has nobody else to tell it.
ENV OPAL_PREFIX=/opt/berth
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/prune.sh,target=/tmp/layers/prune.sh \
    --mount=type=bind,source=docker/layers/openmpi.sh,target=/tmp/layers/openmpi.sh \
    --mount=type=bind,source=docker/locks/openmpi,target=/tmp/locks \
    --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    --mount=type=bind,from=builder,source=/opt/build/bin/uv,target=/usr/local/bin/uv \
    /tmp/layers/openmpi.sh "${PROFILE}" "${OPENMPI}"

FROM openmpi AS deps
ARG PROFILE
ARG TRANSFORMERS
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=uv --mount=type=secret,id=pip \
    --mount=type=secret,id=apt --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/layers/network.sh \
    --mount=type=bind,source=docker/layers/prune.sh,target=/tmp/layers/prune.sh \
    --mount=type=bind,source=docker/layers/bytecode.py,target=/tmp/layers/bytecode.py \
    --mount=type=bind,source=docker/layers/deps.sh,target=/tmp/layers/deps.sh \
    --mount=type=bind,source=docker/locks/deps,target=/tmp/locks \
    --mount=type=bind,source=docker/wheels,target=/tmp/wheels \
    --mount=type=bind,from=source,source=/built,target=/tmp/built \
    --mount=type=bind,from=builder,source=/opt/build/bin/uv,target=/usr/local/bin/uv \
    /tmp/layers/deps.sh train "${PROFILE}" "${TRANSFORMERS}"

FROM deps AS train
RUN \
    --mount=type=tmpfs,target=/tmp --mount=type=cache,target=/root/.cache \
    --mount=type=bind,source=docker/layers/kit.sh,target=/tmp/layers/kit.sh \
    --mount=type=bind,from=kit,source=/dist,target=/tmp/dist \
    --mount=type=bind,from=builder,source=/opt/build/bin/uv,target=/usr/local/bin/uv \
    /tmp/layers/kit.sh train

ARG PROFILE
ARG TORCH
ARG TRANSFORMERS
ARG OPENMPI
LABEL berth.kit="train" \
    berth.profile="${PROFILE}" \
    berth.torch="${TORCH}" \
    berth.transformers="${TRANSFORMERS}" \
    berth.openmpi="${OPENMPI}"

# `IMAGE train` is what SageMaker runs, `IMAGE` what its SDK v3 does; any other command is run as it is.
ENTRYPOINT ["train"]
CMD ["train"]
