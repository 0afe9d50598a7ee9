"""Why a program failed, in the order in which it is found out.

ends            reads the records of startup/python_end, and finds the one that a program's exit belongs to
raised          one exception, whether recorded or printed
stderr_text     what a program wrote to stderr: the last lines, and the tracebacks, wherever they begin
explain         decides from both, and from what is known of a signal, what ended a program
sentence        that, in one sentence with the place in the user's own code
echo            whether an exception only says that a peer has gone
native          crashes in native code, and deaths by signal
start_errors    a program that could not be started at all
failure         the report of one failure, from the rank to /opt/ml/output/failure
mpirun_refusals custom MPI options that mpirun did not take
"""
