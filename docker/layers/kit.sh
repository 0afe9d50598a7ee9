#!/bin/sh
# Layer train or serve: berth's own code, last, so that editing it changes one small layer.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

install_wheels /tmp/dist/*.whl
site=$(echo /opt/berth/lib/python3*/site-packages)
forget_uv_notes "$site"
# The software set and the environment of each Python (berth.runtime.software), and the versions of what is inside.
install -m 0644 /tmp/layer/software.json /opt/berth/software.json
grep -v '^#' /tmp/layer/versions >/opt/berth/versions
# The wheel has both commands; each image keeps its own.
case $IMAGE in
train)
    rm /opt/berth/bin/serve
    # Python runs the lines of such a file where site-packages begins, and not deeper.
    cp /opt/berth/lib/python3*/site-packages/berth/train/startup/berth_start.pth "$site"
    # Before what SDK v3's MPI driver calls: train/sdk3 says why. Isolated, for it calls them in the user's folder.
    mkdir /opt/berth/sdk3
    for hook in /opt/berth/sdk3/mpirun /usr/sbin/sshd; do
        printf '#!/opt/berth/bin/python -I\nfrom berth.train.sdk3.%s import main\n\nmain()\n' "${hook##*/}" >"$hook"
        chmod 0755 "$hook"
    done
    ;;
serve) rm /opt/berth/bin/train ;;
esac
# Compiled without being loaded, which would take longer than the rest of this step: what processes load at their start.
# Hints, the GPU check, metrics and SDK v3's hooks are loaded once in a while, engines by each server and at the end of a
# training. The open smdistributed is compiled in its own layer.
case $IMAGE in
train) seldom='/smdistributed/|/hints/|/gpu/bench/|/engines/|/metrics/|/sdk3/' ;;
serve) seldom='/hints/|/gpu/bench/' ;;
esac
/opt/berth/bin/python -B -m compileall -q --invalidation-mode checked-hash -x "$seldom" /opt/berth/lib/python3*/site-packages/berth
/opt/berth/bin/python -B -c "import berth.$IMAGE.entry"
