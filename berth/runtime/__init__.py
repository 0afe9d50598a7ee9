"""Code that runs in both images.

cpus             number of CPUs that this container may use
codes            exit codes and names of signals
config_files     the files in /opt/ml/input/config
dispatch         process 1: runs the image's own command, or another one instead
failure_file     writes the error for /opt/ml/output/failure
host_files       reads files and folders of the host that may be missing
interfaces       the network interfaces of this host
log              prefixes of log lines
memory           limit, peak and free memory of this container
pip_environment  settings of pip on a closed network: certificates, wheels, a warm pool's cache
rank             a rank's numbers
software         the image's software set, from docker/pins.toml
requirements     installs a user's requirements.txt with pip; missing_tools explains builds that fail because a tool is
                 missing
whole_files      writes files and folders atomically
subprocesses     runs a command in a child process with a time limit
gpu              checks whether torch can run on this host's driver and GPUs, and measures them
hints            suggests fixes when a user's program fails
engines          run models: windows → logits

The files of a model are in berth.contract.model_files, which the user's machine reads as well.
"""
