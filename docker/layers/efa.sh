#!/bin/sh
# Layer efa: libfabric and NCCL's plugin for EFA (aws-ofi-nccl), from AWS's installer; empty without the installer.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ ! -f /tmp/files/VERSION ]; then
    exit 0
fi
version=$(cat /tmp/files/VERSION)

packages() {
    # shellcheck disable=SC2016 # the field is dpkg's
    dpkg-query --show --showformat '${binary:Package}\n' | sort
}
because() { # REASON PATH...
    shift
    rm -rf "$@"
}

# The installer calls apt-get; this wrapper uses the build's archive and skips recommended packages.
mkdir /tmp/bin
cat >/tmp/bin/apt-get <<'END'
#!/bin/sh
PATH=${PATH#/tmp/bin:}
. /tmp/layer/common.sh
[ -n "$(ls /var/lib/apt/lists)" ] || apt_get update -qq
apt_get -o APT::Install-Recommends=false -o Dpkg::Use-Pty=0 "$@"
END
chmod +x /tmp/bin/apt-get
ln -s apt-get /tmp/bin/apt

packages >/tmp/before
# Skip the kernel module and limits, which belong to the host, and the test of devices, which a build does not have.
(cd /tmp/files && PATH=/tmp/bin:$PATH ./efa_installer.sh -y --skip-kmod --skip-limit-conf --no-verify) ||
    fail "AWS's EFA installer $version ended with exit code $?: see what it says, or build with --without efa."
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

installed=$(sed -n 's/^#* *EFA installer version: *//p' /opt/amazon/efa_installed_packages 2>/dev/null || true)
[ "$installed" = "$version" ] || fail "EFA's installer says that it is version ${installed:-unknown}, and docker/pins.toml has $version: pin the file and the version that belong together."
plugins=/opt/amazon/ofi-nccl/lib
[ -e $plugins/libnccl-net-ofi.so ] || fail "EFA's installer $version brought no $plugins/libnccl-net-ofi.so, without which NCCL goes over TCP: pin 1.47.0 or a newer one."

# Removed by hand, because apt would also remove the plugin, which depends on these.
because "Open MPI 4.1 and 5 with PMIx and PRRTE: mpirun comes from the layer openmpi" \
    /opt/amazon/openmpi /opt/amazon/openmpi5 /opt/amazon/pmix /opt/amazon/prrte
because "headers and manuals" /opt/amazon/efa/include /opt/amazon/efa/share/man /opt/amazon/ofi-nccl/include
find /opt/amazon \( -name '*.a' -o -name '*.la' -o -name '*.pc' \) -delete
# Bytecode of Debian's python3, which its Open MPI installs: times in it differ from build to build.
find /usr -name '*.pyc' -newer /tmp/before -delete
# Development files of packages that it installed as dependencies; those of the compiler layer are kept.
packages | comm -13 /tmp/before - | grep -e '-dev\(:\|$\)' | xargs -r dpkg-query --listfiles | sort -u | while read -r path; do
    [ -d "$path" ] || rm -f "$path"
done

ln -sf /opt/amazon/efa/bin/fi_info /usr/local/bin/fi_info
for folder in /opt/amazon/efa/lib $plugins; do
    grep -qsx "$folder" /etc/ld.so.conf.d/*.conf || echo "$folder" >>/etc/ld.so.conf.d/berth-efa.conf
done
ldconfig
# NCCL loads this name if no setting names a plugin. A link next to the plugin would not work, because ldconfig ignores links
# whose name differs from the name inside the library.
ldconfig -p | grep -q 'libnccl-net\.so ' || ln -sf $plugins/libnccl-net-ofi.so /usr/lib/x86_64-linux-gnu/libnccl-net.so
rm -f /var/cache/ldconfig/aux-cache

fi_info --version || fail "libfabric of EFA's installer $version does not run here: see the lines above, or build with --without efa."
# The plugin needs CUDA's runtime, which images for CPUs do not have.
if ldconfig -p | grep -q 'libcudart\.so '; then
    /opt/berth/bin/python -c 'import ctypes; ctypes.CDLL("libcudart.so"); ctypes.CDLL("libnccl-net.so")' ||
        fail "NCCL's plugin of EFA's installer $version can't be loaded, and NCCL would go over TCP: see the reason above, or build with --without efa."
fi
