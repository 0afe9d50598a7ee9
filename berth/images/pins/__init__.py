"""docker/pins.toml, and the files that are rendered from it.

pins         its profiles, packages and files as objects
pins_file    reads it; pins_form and software_form check it
pins_edit    adds or removes a profile in its text
parts        the parts of an image that a build may leave out, such as EFA
layer_files  the versions and files that each step of docker/Dockerfile reads
"""
