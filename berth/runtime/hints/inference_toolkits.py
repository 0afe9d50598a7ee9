"""Modules of other model servers and their toolkits that a handler imports and the inference image does not have."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_MISSING = re.compile(r"No module named '([\w.]+)'|cannot import name '\w+' from '([\w.]+)'")
_BUILT_IN = "delete input_fn and output_fn, which berth has built in"
_FUNCTIONS = (
    "write model_fn(model_dir) for what loads the model, predict_fn(data, model) for what uses it, and input_fn and "
    "output_fn only for other types than JSON, JSON lines, CSV and .npy"
)
_REMEDIES = {
    "sagemaker_huggingface_inference_toolkit": f"berth has only the toolkit's decoder_encoder; {_BUILT_IN}",
    "sagemaker_containers": f"it was replaced by sagemaker_inference (decoder, encoder), which the image has; or "
    f"{_BUILT_IN}",
    "sagemaker_inference": f"the image has its decoder, encoder, content_types and errors; or {_BUILT_IN}",
    "ts": f"a handler of TorchServe does not run here: {_FUNCTIONS}",
    "mms": f"a service of Multi Model Server does not run here: {_FUNCTIONS}",
    "djl_python": f"a handler of DJL Serving does not run here: {_FUNCTIONS}",
    "triton_python_backend_utils": f"a model of Triton does not run here: {_FUNCTIONS}",
}
# sagemaker_pytorch_serving_container, sagemaker_mxnet_container, sagemaker_sklearn_container and similar.
_FRAMEWORK_CONTAINER = re.compile(r"sagemaker_(?!inference|training|huggingface)\w+_(?:serving_)?container")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to write instead."""
    match = _MISSING.search(raised.message)
    if match is None or not context.serving or raised.name not in ("ModuleNotFoundError", "ImportError"):
        return ""
    module = (match[1] or match[2]).partition(".")[0]
    if _FRAMEWORK_CONTAINER.fullmatch(module):
        return f"; {module} belongs to another image: import from sagemaker_inference instead, or {_BUILT_IN}"
    return f"; {_REMEDIES[module]}" if module in _REMEDIES else ""
