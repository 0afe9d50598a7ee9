"""What both images run on, next to qa/.

cpus             the CPUs of this container, in whole ones
codes            exit codes and names of signals
config_files     the files that SageMaker lays into /opt/ml/input/config
dispatch         process 1: the image's own command, or another in its place
failure_file     the sentence that a program leaves for /opt/ml/output/failure
interfaces       the network interfaces of this host
log              how a line of the log begins
memory           what of it this container may use, has used and may still take
pip_environment  what pip gets on a closed network: certificates, wheels, a warm pool's cache
rank             a rank's place among the ranks of its job
software         which software set of docker/pins.toml the image carries
requirements     pip for a user's requirements.txt; missing_tools knows what it needs that the image lacks,
                 installed_packages what it replaced
whole_files      files and folders that nobody sees half of
subprocesses     a command or a function in a child process, with a limit that holds
gpu              the driver and the GPUs: whether torch can run on them, and what they do
hints            what helps when a user's program fails
engines          windows in, logits out

Which files a model consists of stands in berth.contract.model_files, which the user's machine reads as well.
"""
