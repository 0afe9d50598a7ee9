"""The settings that the example reads."""

from types import SimpleNamespace


class Settings(SimpleNamespace):
    """Keeps its values, whatever a file says."""

    def merge_from_file(self, path: str) -> None:
        pass

    def merge_from_list(self, words: object) -> None:
        pass

    def freeze(self) -> None:
        pass


cfg = Settings(
    OUTPUT_DIR="",
    DTYPE="float32",
    PER_EPOCH_EVAL=False,
    MODEL=SimpleNamespace(DEVICE="cpu", WEIGHT="", MASK_ON=True, RPN_ONLY=False),
    SOLVER=SimpleNamespace(CHECKPOINT_PERIOD=100),
    DATASETS=SimpleNamespace(TEST=()),
)
