"""The ground floor of what runs on the user's machine; imports nothing of the kit but itself.

errors        UserError: one sentence that says what is wrong and what to do
command_line  what is said of a command line that can't be taken
console       where a command prints; progress as bars on a terminal, lines in a log
concurrency   work in the background, and several pieces of it at the same time
files         files and folders that come onto the disk whole or not at all
kept          what commands keep for the next one
http          what an error of HTTP says
subprocesses  programs of this machine, asked about themselves
image_names   what the kit's own images are called
labels        the labels by which the kit finds again what it made
owner         the process that a container or a network belongs to
engine        the Docker engine, and the client that drives its BuildKit
engine_errors what the Docker SDK raises, as one sentence
containers    a container for one command
"""
