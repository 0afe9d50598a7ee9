"""The error that ends a job because of a mistake that its user can fix."""


class JobError(Exception):
    """An error that the user can fix; the message is one sentence: what is wrong and what to do."""
