"""Finds out why a program failed, and reports it in one sentence.

ends            reads the records of startup/python_end, and finds the one that explains a program's exit
raised          one exception, whether recorded or printed
stderr_text     a program's stderr: its last lines, and the exception at its end
explain         decides from the records, stderr and the signal what ended a program
sentence        describes an exception in one sentence, with the place in the user's own code
echo            whether an exception only says that a peer has gone
native          crashes in native code, and deaths by signal
start_errors    programs that could not be started
failure         the report of one failure, from the rank to /opt/ml/output/failure
mpirun_refusals custom MPI options that mpirun rejects
"""
