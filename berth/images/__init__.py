"""Builds, tests and inspects images on your machine. Folders in import order: each imports only from those below it.

commands           commands of build.py; options has the arguments that several of them share
profiles/          adds, lists and removes profiles
build/             builds and tests an image
inspect/           size, contents and insecure packages of an image
doctor, probe      what is missing on this machine
clean              removes berth's containers, networks and images
selection, local_image   select an image on the engine, and describe it
locks/             the hashed locks of every profile
network/           network settings of this machine, and files that no package index has
scratch            temporary folders that live as long as one command
pins/              docker/pins.toml
"""
