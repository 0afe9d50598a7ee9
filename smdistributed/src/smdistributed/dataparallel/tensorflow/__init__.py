"""The TensorFlow half of the library, which is not here."""

raise ImportError(
    "smdistributed.dataparallel.tensorflow is for TensorFlow, and this is for PyTorch; use a TensorFlow image, or "
    "smdistributed.dataparallel.torch."
)
