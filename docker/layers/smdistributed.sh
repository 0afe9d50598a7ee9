#!/bin/sh
# Layer smdistributed: SageMaker's data parallel library (SMDDP) and GDRCopy's user library; each empty without its file.
# Usage: smdistributed.sh SMDDP GDRCOPY     their versions
set -eu
smddp=$1 gdrcopy=$2

if [ "$gdrcopy" != none ]; then
    cp -a /tmp/files/gdrcopy/libgdrapi.so* /usr/lib/x86_64-linux-gnu
    ldconfig && rm -f /var/cache/ldconfig/aux-cache
    if ! /opt/berth/bin/python -B -c 'import ctypes; ctypes.CDLL("libgdrapi.so.2")'; then
        echo "berth: error: the library of gdrcopy $gdrcopy can't be loaded: see the reason above, or build with --without gdrcopy." >&2
        exit 1
    fi
fi

if [ "$smddp" != none ]; then
    if ! /tmp/tools/uv pip install --no-cache --python /opt/berth/bin/python --no-deps --no-index --link-mode copy --no-progress /tmp/files/smddp/*.whl; then
        echo "berth: error: the wheel of SMDDP $smddp can't be installed: see the reason above, and pin another, or build with --without smddp." >&2
        exit 1
    fi
    # uv's note of when the wheel was fetched, which differs from build to build.
    info=$(echo /opt/berth/lib/python3*/site-packages/smdistributed_dataparallel-*.dist-info)
    sed -i '/\/uv_cache\.json,/d' "$info/RECORD" && rm "$info/uv_cache.json"
    # AWS's image has this folder in LD_LIBRARY_PATH.
    find /opt/berth/lib/python3*/site-packages/smdistributed -type d -name lib | sort >/etc/ld.so.conf.d/berth-smdistributed.conf
    ldconfig && rm -f /var/cache/ldconfig/aux-cache
    # Read, not imported: the import refuses every machine but the instances that it knows.
    found=$(/opt/berth/bin/python -B -c 'from importlib.metadata import version; print(version("smdistributed-dataparallel"))')
    if [ "$found" != "$smddp" ]; then
        echo "berth: error: the wheel holds SMDDP $found, and docker/pins.toml has $smddp: pin the file and the version that belong together." >&2
        exit 1
    fi
fi
