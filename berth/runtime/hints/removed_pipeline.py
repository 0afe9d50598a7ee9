"""Replacements for the question-answering pipeline, which transformers 5 does not have."""

import re

from berth.runtime.hints.images import image_with, this_image
from berth.runtime.hints.program import ProgramContext, RaisedException

LAST_WITH_PIPELINE = "4.57.6"
_REMOVED = re.compile(
    r"task question-answering has been removed|Unknown task question-answering|"
    r"(?:cannot import name|has no attribute) '?QuestionAnsweringPipeline"
)


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """In a handler berth's own pipeline; elsewhere an image with an older transformers."""
    if not _REMOVED.search(raised.message):
        return ""
    if context.serving:
        return (
            "; transformers 5 has no such pipeline: use berth's, `from berth.serve.pipeline import load_pipeline` and "
            "`load_pipeline(model_dir)`, which is called in the same way"
        )
    return f"; transformers 5 has no such pipeline: {image_with(LAST_WITH_PIPELINE, this_image())}"
