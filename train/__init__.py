"""What runs in the training image. Of these, each imports only those after it; run_qa imports none of them.

command      the console script: process 1, which holds signals back until entry has handlers
entry        the rest of process 1: reads the job, decides, and ends as SageMaker expects
sdk3/        the programs that SDK v3's MPI driver calls instead of mpirun and sshd
launching/   starts the ranks of this host, and wraps each of them
planning/    decides what runs where: from the job and this host to mpirun's command line
hosts/       how several hosts meet, watch each other and end together
failures/    why a program failed, in one sentence
startup/     what every Python of the image does at its start
run_qa/      the kit's own program: question answering on SQuAD
smdistributed is a library of its own, in the folder of that name at the top level.
"""
