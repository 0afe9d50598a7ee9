"""The TensorFlow half of the library, which is not here."""

raise ImportError(
    "smdistributed.modelparallel.tensorflow is for TensorFlow, and this image is for PyTorch; use a TensorFlow image, "
    "or smdistributed.modelparallel.torch."
)
