"""Scripts without spaces between words, such as Chinese, Japanese and Thai (but not Korean)."""

import re

import numpy as np
import numpy.typing as npt

_UNSPACED = re.compile(
    "["
    "\u0e00-\u109f"  # Thai, Lao, Tibetan, Burmese
    "\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf"  # Khmer, Tai
    "\u2e80-\u2fdf\u3000-\u312f\u3190-\u9fff\uf900-\ufaff\ufe30-\ufe4f"  # Chinese, kana, their punctuation
    "\ua000-\ua4cf\ua980-\ua9ff\uaa60-\uaadf"  # Yi, Javanese, more of Burmese and Tai
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f"  # wide punctuation, narrow kana; not wide letters
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"  # more of kana and Chinese
    "]+"
)


def unspaced(text: str) -> npt.NDArray[np.bool_] | None:
    """(characters,): true for characters of such a script; None if there are none."""
    if text.isascii():
        return None
    mask = np.zeros(len(text), np.bool_)
    for run in _UNSPACED.finditer(text):
        mask[run.start() : run.end()] = True
    return mask if mask.any() else None
