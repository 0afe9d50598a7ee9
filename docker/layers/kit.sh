#!/bin/sh
# Layer train or serve: berth's own code, last, so that editing it changes one small layer.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

install_wheels /tmp/dist/*.whl
site=$(echo /opt/berth/lib/python3*/site-packages)
forget_uv_notes "$site"
# What berth.runtime.software reads (the software set and variables for each Python), and the versions of the content.
install -m 0644 /tmp/layer/software.json /opt/berth/software.json
grep -v '^#' /tmp/layer/versions >/opt/berth/versions
# The wheel has both commands; each image keeps its own.
case $IMAGE in
train)
    rm /opt/berth/bin/serve
    # Python runs a .pth file only at the top of site-packages, not in its subfolders.
    cp /opt/berth/lib/python3*/site-packages/berth/train/startup/berth_start.pth "$site"
    # These hooks replace the programs that SDK v3's MPI driver calls; train/sdk3 says why. They run isolated (-I), because
    # the driver calls them in the user's folder.
    mkdir /opt/berth/sdk3
    for hook in /opt/berth/sdk3/mpirun /usr/sbin/sshd; do
        printf '#!/opt/berth/bin/python -I\nfrom berth.train.sdk3.%s import main\n\nmain()\n' "${hook##*/}" >"$hook"
        chmod 0755 "$hook"
    done
    ;;
serve) rm /opt/berth/bin/train ;;
esac
# Compile what processes load at their start. Importing it instead would take longer than the rest of this step. Skip what is
# rarely loaded: hints, the GPU check, and in the training image metrics, SDK v3's hooks and engines. The open smdistributed
# is compiled in its own layer.
case $IMAGE in
train) seldom='/smdistributed/|/hints/|/gpu/bench/|/engines/|/metrics/|/sdk3/' ;;
serve) seldom='/hints/|/gpu/bench/' ;;
esac
/opt/berth/bin/python -B -m compileall -q --invalidation-mode checked-hash -x "$seldom" /opt/berth/lib/python3*/site-packages/berth
/opt/berth/bin/python -B -c "import berth.$IMAGE.entry"
