"""Used by everything that runs on the user's machine; imports no other package of berth.

errors        UserError: one sentence that says what is wrong and what to do
command_line  errors in a command line, with the option or command that was probably meant
console       where a command prints; progress as bars on a terminal, lines in a log
concurrency   background tasks and thread pools
files         atomic writes, and errors of the disk as sentences
kept          a cache of JSON documents between commands
http          HTTP errors in few words, without passwords
subprocesses  a program's output, with a time-out
image_names   names and tags of berth's images
labels        labels on the images, containers and networks that berth makes
owner         the process that a container or a network belongs to
engine        the Docker engine, and the client that drives its BuildKit
engine_errors errors of the Docker SDK, as one sentence
containers    a container for one command
"""
