"""A reference, not a library: what a script that asks for smdistributed computes, in one process and in plain torch."""
