"""Makes the launch plan, which says what runs on which hosts, from the job, the hardware and the environment.

job                the job as SageMaker describes it
hardware           GPUs, CPUs and /dev/shm of this host
plan               the launch plan and its reasons; sentences has the text of some of them
planned_variables  environment variables that the plan sets
mpirun             mpirun's command line, and what its output means
mpirun_settings    drops those of our mpirun settings that the user has set
efa                whether NCCL can use EFA
trial              tries in a child process to load something
smddp              whether SageMaker's data parallel library can be imported
model_parallel     jobs that request SageMaker's model parallel library
"""
