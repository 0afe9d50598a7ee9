"""The error that a job ends in when its user made a mistake."""


class JobError(Exception):
    """A mistake that the user can fix; the message is the one sentence that says what is wrong and what to do."""
