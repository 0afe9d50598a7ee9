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
