"""The server's environment variables.

variables   the table of all variables: how each is parsed, and where it has an effect
settings    reads them into one object
"""
