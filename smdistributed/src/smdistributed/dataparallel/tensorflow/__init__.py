"""The library's TensorFlow interface, which is not supported."""

raise ImportError(
    "smdistributed.dataparallel.tensorflow is for TensorFlow, and this library is for PyTorch; use a TensorFlow image, "
    "or smdistributed.dataparallel.torch."
)
