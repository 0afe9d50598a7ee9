"""The library's TensorFlow interface, which is not supported."""

raise ImportError(
    "smdistributed.modelparallel.tensorflow is for TensorFlow, and this library is for PyTorch; use a TensorFlow "
    "image, or smdistributed.modelparallel.torch."
)
