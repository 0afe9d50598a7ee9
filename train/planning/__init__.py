"""Decides what runs on which hosts: job, hardware and environment in, the launch plan out.

job                the job as SageMaker describes it
hardware           GPUs, CPUs and /dev/shm of this host
plan               the launch plan, with the reasons for it (sentences)
planned_variables  the environment variables that it sets
mpirun             its command line; mpirun_settings leaves out what the user has set
efa, smddp         whether NCCL goes over EFA, and whether SageMaker's data parallel library can be imported
model_parallel     a job that asks for SageMaker's model parallel library
"""
