"""docker/pins.toml, and the files that are made from it.

pins         its profiles, packages and files as objects
pins_file    reads it; pins_form and software_form validate it
pins_edit    adds or removes a profile in its text
parts        the parts of an image that a build may leave out, such as EFA
layer_files  writes the versions and files that each step of docker/Dockerfile reads
"""
