"""What helps when a user's program fails: one table of hints for both images.

table            the hints in their order; `remedy` and `last_line_remedy` ask them
program          what a hint may look at: the exception, and how the program was started
hidden_packages  a file of the user's that has the name of a package
replaced_packages what a requirements.txt replaced in the image
inference_toolkits modules of other model servers, in a handler
messages         exceptions whose text is enough: a model's file that can't be loaded, labels, ids, killed workers
missing_modules  a module that is not installed; own_modules looks for it in the user's source folder
relative_imports `from .model import Net` in a program that runs as a script
images           which profile, or which command, makes an image with the versions that a script wants
removed_pipeline the question-answering pipeline, which transformers 5 does not have
removed_apis     arguments and imports that the image's transformers does not have
arguments        what argparse refused
endpoint         variables of jobs, files and folders, in a handler
environment      a variable that the job does not set, such as LOCAL_RANK or a channel's
places           files and folders that are elsewhere: channels, outputs, the source folder
tools            a command that the image does not have
hardware         CUDA where there is none
sources          the user's own files, parsed
advice           what other libraries' exceptions advise, as a line for requirements.txt
"""
