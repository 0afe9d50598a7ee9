"""What runs in the training image, in the order in which a job goes through it.

command      the console script: process 1, which holds signals back until entry has handlers
entry        the rest of process 1: reads the job, decides, and ends as SageMaker expects
config_files which of SageMaker's files are read, the checkpoint folder that one of them names
job          the job as SageMaker describes it; what the user asked for, and its strings by type, are in berth.contract
hardware     what this host has; before it, berth.runtime.gpu.start judges driver and GPU
efa, smddp   whether NCCL goes over EFA, and whether SageMaker's data parallel library can be imported
plan, mpirun the launch plan and its command line, with sentences and model_parallel for it; pure. mpirun_settings
             leaves out what would fight a setting of the user's
environment  what environment a rank gets, from the plan to run_qa itself
hosts/       this host's part of a job: how several hosts meet, see that each other lives, and end together;
             host_names lists many of them in one line
prepare      brings the user's program and its packages
launch, rank start the ranks of a host, and what stands around each of them; they meet in a runfolder
failures/    what ended a program: records of its Pythons, what it printed, signals, and what the system refused
failure      one report of it, from the rank to /opt/ml/output/failure; mpirun_refusals knows custom MPI options
outcome      how the job ended, and what it leaves; output_sizes says how large that is, ownership hands it over
start_hook   what every Python of the image does at its start, also where SDK v3 replaces the entry; by berth_start.pth
rank_hook    for start_hook: what a rank does to train together with others, its first_step included; rank_events is
             what that shows at the end
gloo_threads for start_hook: Python ends once the threads of its process groups are at rest
cpu_trainer  for start_hook: has transformers before 5 take the CPU where there is no GPU; older_datasets has an older
             datasets read what newer ones write, and its columns of arrays
after_import a function called once a module has been imported, for start_hook
metrics/     the metrics that scripts ask evaluate and datasets for, without a network; start_hook brings them in
smdistributed_finder has `import smdistributed` find ours after AWS's; partitioned_trainer has Trainer use it
smdistributed/ an open implementation of SageMaker's libraries of that name, a package of its own
sdk3/        what stands between SDK v3's MPI driver and mpirun
log          whole lines that begin with `berth: `; line_buffer makes lines of a program's output, progress bars tamed
run_qa       the kit's own program: question answering on SQuAD, its parts in finetune/
"""
