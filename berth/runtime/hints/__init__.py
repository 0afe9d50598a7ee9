"""Hints for failed user programs, in both images.

table               the order of the hints; `remedy` and `last_line_remedy` return the first that applies
program             the input of a hint: the exception, and how the program was started
hidden_packages     a user's file that hides a package of the same name
replaced_packages   packages of the image that a requirements.txt replaced
inference_toolkits  modules of other model servers, in a handler
messages            exceptions with a known message: a model file that can't be loaded, labels, ids, killed workers
missing_modules     a module that is not installed; own_modules searches for it in the user's source folder
relative_imports    `from .model import Net` in a program that runs as a script
images              the profile, or the command, for an image with the versions that a script needs
removed_pipeline    the question-answering pipeline, which transformers 5 does not have
removed_apis        arguments and imports that the image's transformers does not have
arguments           command line arguments that argparse rejected
environment         a variable that job or endpoint does not set, such as LOCAL_RANK or a channel's
places              files and folders in another place: channels, outputs, the source folder, the model
tools               a command or library that the image does not have
hardware            CUDA on a host or in an image without it
sources             parses the user's source files
advice              turns `pip install` advice of other libraries into a line for requirements.txt
"""
