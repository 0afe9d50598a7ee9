#!/bin/sh
# Stage inputs, which no image contains: for each step of the Dockerfile a folder /layers/STEP with all that it reads.
#   install.sh   the step's script        common.sh, prune.sh, bytecode.py   what scripts call
#   versions     the profile's versions   lock.txt   hashed packages   wheels/   those of docker/wheels that the lock names
# Usage: inputs.sh PROFILE WITHOUT     WITHOUT: files to leave out, such as efa,smddp
set -eu
profile=$1 without=$(echo "$2" | tr ',' ' ')
docker=/tmp/docker layers=/layers
locks=$docker/locks/$profile

fail() {
    echo "berth: error: $1" >&2
    exit 1
}

known=$(cd "$docker/locks" && for each in */; do echo "${each%/}"; done | LC_ALL=C sort)
if ! echo "$known" | grep -qxF "$profile"; then
    fail "Unknown profile '$profile'; docker/locks has $(echo "$known" | paste -sd ' ' | sed 's/ /, /g'). If it is new in docker/pins.toml, run 'python build.py pins' first."
fi
for part in $without; do
    case $part in
    efa | smddp | gdrcopy | cuda-compat) ;;
    *) fail "Unknown file '$part' in WITHOUT; it may name efa, smddp, gdrcopy and cuda-compat." ;;
    esac
done

# script STEP: the script of a step; some steps share one.
script() {
    case $1 in
    cuda | math | cudnn | nccl) echo nvidia.sh ;;
    driver) echo files.sh ;;
    train | serve) echo kit.sh ;;
    *) echo "${1%-*}.sh" ;;
    esac
}

# pinned LOCK: the packages of a lock as NAME==VERSION, names as wheels spell them.
pinned() {
    sed -n 's/^\([A-Za-z0-9._-]*\)==\([^ \\]*\).*/\1 \2/p' "$1" | while read -r package release; do
        echo "$(normal "$package")==$release"
    done
}
normal() {
    echo "$1" | tr 'A-Z.-' 'a-z__'
}

for step in python builder cuda math cudnn nccl pytorch compiler driver compat openvino-train openmpi files efa smdistributed \
    system source-train deps-train open train openvino-serve source-serve deps-serve serve; do
    layer=$layers/$step
    mkdir -p "$layer/wheels"
    cp "$docker/layers/$(script $step)" "$layer/install.sh"
    cp "$docker/layers/common.sh" "$docker/layers/prune.sh" "$docker/layers/bytecode.py" "$layer"
    if [ -f "$locks/$step.env" ]; then
        cp "$locks/$step.env" "$layer/versions"
    fi
    case $step in source-* | deps-* | train | serve) echo "IMAGE=${step#*-}" >>"$layer/versions" ;; esac
    lock=$locks/$step.txt
    [ -f "$lock" ] || lock=$locks/${step%-*}.txt # openvino.txt
    if [ -f "$lock" ]; then
        cp "$lock" "$layer/lock.txt"
        pinned "$layer/lock.txt" >"$layers/$step.pinned"
    fi
done
cp "$docker/locks/build.txt" "$layers/builder/lock.txt"

# Files that an image keeps: its software set, and its versions without the omitted files.
for image in train serve; do
    cp "$locks/software.json" "$layers/$image"
    for part in $without; do
        sed -i "/^$(echo "$part" | tr 'a-z-' 'A-Z_')=/d" "$layers/$image/versions"
    done
done

# Each file of this profile that is not left out, for the stage that checks it.
for file in "$locks"/files/*.env; do
    part=$(basename "$file" .env)
    case " $without " in *" $part "*) continue ;; esac
    case $part in
    '*') ;;
    cuda-compat) cp "$file" "$docker/layers/download.py" "$layers/driver" ;;
    *) cp "$file" "$docker/layers/download.py" "$layers/files" ;;
    esac
done

for wheel in "$docker"/wheels/*.whl "$docker"/wheels/*.tar.gz; do
    [ -f "$wheel" ] || continue
    file=${wheel##*/}
    case $file in
    *.whl) name=${file%%-*} version=${file#*-} version=${version%%-*} ;;
    *) name=${file%-*} version=${file##*-} version=${version%.tar.gz} ;;
    esac
    grep -lxF "$(normal "$name")==$version" "$layers"/*.pinned | while read -r found; do
        cp "$wheel" "${found%.pinned}/wheels"
    done
done
