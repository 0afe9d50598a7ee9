#!/bin/sh
# Layer smdistributed: SageMaker's data parallel library (SMDDP) and GDRCopy's user library; each empty without its file.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ -f /tmp/gdrcopy/VERSION ]; then
    cp -a /tmp/gdrcopy/libgdrapi.so* /usr/lib/x86_64-linux-gnu
    ldconfig && rm -f /var/cache/ldconfig/aux-cache
    /opt/berth/bin/python -B -c 'import ctypes; ctypes.CDLL("libgdrapi.so.2")' ||
        fail "the library of gdrcopy $(cat /tmp/gdrcopy/VERSION) can't be loaded: see the reason above, or build with --without gdrcopy."
fi

if [ -f /tmp/smddp/VERSION ]; then
    smddp=$(cat /tmp/smddp/VERSION)
    install_wheels /tmp/smddp/*.whl ||
        fail "the wheel of SMDDP $smddp can't be installed: see the reason above, and pin another, or build with --without smddp."
    forget_uv_notes "$(echo /opt/berth/lib/python3*/site-packages)"
    # AWS's image has this folder in LD_LIBRARY_PATH.
    find /opt/berth/lib/python3*/site-packages/smdistributed -type d -name lib | sort >/etc/ld.so.conf.d/berth-smdistributed.conf
    ldconfig && rm -f /var/cache/ldconfig/aux-cache
    # Read, not imported: the import fails on machines that are not known instance types.
    installed=$(/opt/berth/bin/python -B -c 'from importlib.metadata import version; print(version("smdistributed-dataparallel"))')
    [ "$installed" = "$smddp" ] ||
        fail "the wheel holds SMDDP $installed, and docker/pins.toml has $smddp: pin the file and the version that belong together."
fi
