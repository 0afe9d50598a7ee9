"""A line about the environment."""


def collect_env_info() -> str:
    return "a double of maskrcnn_benchmark"
