"""The modules of Hugging Face's inference toolkit that handlers import, for example
`from sagemaker_huggingface_inference_toolkit import decoder_encoder`. This folder is last on a handler's path, so the
toolkit itself is used if it is installed.

decoder_encoder  decodes bodies, and encodes predictions
content_types    the names of media types
"""

from sagemaker_inference import content_types

__all__ = ["content_types"]
