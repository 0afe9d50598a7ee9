"""Hints for handlers in the inference image: they must speak of models and endpoints, not of jobs."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.runtime.hints.program import ProgramContext
from berth.runtime.hints.table import remedy
from tests.files import write_files
from tests.unit.runtime.hints.programs import raised_by

JOB_HINTS = ("the job", "channel", "fit(", "SM_MODEL_DIR (", "source_dir", "build.py build train")


def remedy_for(folder: Path, code: str | Callable[[], object]) -> str:
    """The hint for a handler that runs this code as `folder`/code/inference.py, or calls this function."""
    context = ProgramContext(folder / "code", serving=True)
    found = remedy(raised_by(code, folder / "code/inference.py"), context)
    assert not any(words in found for words in JOB_HINTS), found
    return found


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("import lightgbm_of_mine", ["lightgbm_of_mine", "requirements.txt"]),
        ("import cv2_", ["requirements.txt"]),
        ("from sagemaker_huggingface_inference_toolkit import handler_service", ["decoder_encoder", "delete input_fn"]),
        ("from sagemaker_containers.beta.framework import encoders", ["sagemaker_inference", "delete input_fn"]),
        ("from sagemaker_pytorch_serving_container import decoder", ["sagemaker_inference", "delete input_fn"]),
        ("import sagemaker_mxnet_container", ["sagemaker_inference"]),
        ("from ts.torch_handler.base_handler import BaseHandler", ["TorchServe", "model_fn(model_dir)"]),
        ("import mms.service", ["Multi Model Server", "predict_fn(data, model)"]),
        ("import os; os.environ['SM_CHANNEL_TRAIN']", ["SM_CHANNEL_TRAIN", "model_dir"]),
        ("import os; os.environ['MY_LABELS']", ["MY_LABELS", "env="]),
        ("open('/opt/ml/model/words.txt')", ['os.path.join(model_dir, "data/words.txt")']),
        ("open('nowhere.txt')", ["model_dir", "__file__"]),
        ("from .parts import run", ["from parts import run"]),
        ("from transformers import pipeline; pipeline('question-answering')", ["from berth.serve.pipeline import"]),
        ("from transformers import QuestionAnsweringPipeline", ["from berth.serve.pipeline import load_pipeline"]),
        ("import torch; torch.zeros(1).cuda()", ["torch.cuda.is_available()", "build.py build serve"]),
        ("raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')", ["headless"]),
        ("import argparse; argparse.ArgumentParser().parse_args(['--x'])", ['if __name__ == "__main__"']),
        ("import subprocess; subprocess.run(['ffmpeg_'])", ["the image has no ffmpeg_"]),
    ],
)
def test_hints_for_handlers(tmp_path: Path, code: str, facts: list[str]) -> None:
    write_files(tmp_path, {"code/inference.py": code, "code/parts.py": "", "data/words.txt": ""})
    found = remedy_for(tmp_path, code)
    assert found.startswith("; ")
    assert all(fact in found for fact in facts), found


def test_hints_for_unloadable_model_files(tmp_path: Path) -> None:
    pickled_in_script = b"c__main__\nNet\n."
    assert "Net was pickled in the script" in remedy_for(tmp_path, lambda: pickle.loads(pickled_in_script))
    assert "Git LFS" in remedy_for(tmp_path, lambda: pickle.loads(b"version https://git-lfs"))

    import torch

    torch.save({"model": torch.nn.Linear(1, 1)}, tmp_path / "model.pth")
    assert "weights_only=False" in remedy_for(tmp_path, lambda: torch.load(tmp_path / "model.pth"))
