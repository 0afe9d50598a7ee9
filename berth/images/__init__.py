"""How an image comes about on your machine. Folders in the order of imports: each uses only those below it.

commands           those of build.py; options are arguments that several of them take
profiles/          profiles of the user's own
build/             builds and tests an image
inspect/           what an image weighs and holds, and what is out of date
doctor, probe      what is missing on this machine
clean              removes what the kit made
selection, local_image   finds an image on the engine
locks/             the hashed locks of every profile
network/           the settings of this machine's network, and files that no index has
scratch            temporary folders that live as long as one command
pins/              docker/pins.toml
"""
