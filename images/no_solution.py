"""What uv says where it finds no solution, as one sentence. Pure."""


def explained(uv_says: str) -> str:
    """uv's "No solution found" as one sentence that names the two that collide; its own last line where it is another
    text.
    """
    raise NotImplementedError
