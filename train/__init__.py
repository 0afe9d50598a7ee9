"""What runs in the training image, in the order in which a job goes through it.

entry        process 1: reads the job, decides, starts, and ends as SageMaker expects
job          the job as SageMaker describes it; what the user asked for, and its strings by type, are in berth.contract
hardware     what this host has; before it, berth.runtime.gpu.start judges driver and GPU
efa, smddp   whether NCCL goes over EFA, and whether SageMaker's data parallel library can be imported
plan, mpirun the launch plan and its command line; pure
hosts/       how several hosts meet, see that each other lives, and end together
launch, rank start the ranks of a host, and what stands around each of them
failure      one sentence of what went wrong, from the rank to /opt/ml/output/failure
tracebacks   those of a user's program, without what started it
run_qa       the kit's own program: question answering on SQuAD, its parts in finetune/
"""
