"""What a script can use of a package, read from its source alone."""

from pathlib import Path

from bench.package_api import Package

FILES = {
    "__init__.py": """
import os
from typing import TYPE_CHECKING
from .utils import _LazyModule, helper
_import_structure = {"trainer": ["Trainer"], "args": []}
try:
    import torch
except ImportError:
    pass
else:
    _import_structure["args"].append("Arguments")
    _import_structure["args"].extend(["More", "TFModel"])
    _import_structure["trainer"] += ["Callback"]
if TYPE_CHECKING:
    from .args import Arguments
    from .models import *
else:
    import sys
    sys.modules[__name__] = _LazyModule(__name__)
""",
    "utils.py": "class _LazyModule: ...\ndef helper(a, *, b=1): ...\ndef open_ended(**options): ...\nLIMIT = 3\n",
    "args.py": """
from dataclasses import dataclass, field
from typing import ClassVar
@dataclass
class Arguments:
    output_dir: str
    seed: int = 1
    chosen: str = field(init=False)
    shared: ClassVar[int] = 3
@dataclass
class More(Arguments):
    generate: bool = False
    @property
    def device(self): ...
""",
    "trainer.py": """
import torch
from .utils import helper
class Trainer:
    def __init__(self, model, tokenizer=None):
        self.tokenizer = tokenizer
        self._model = model
    def train(self, resume=None): ...
    def log(self, **options): ...
class Callback(Trainer): ...
""",
    "models/__init__.py": "from .llama import *\n",
    "models/llama/__init__.py": "from .modeling_llama import *\n",
    "models/llama/modeling_llama.py": '__all__ = [\n    "LlamaConfig",\n    "LlamaModel",\n]\nclass LlamaLayer: ...\n',
    "modeling_tf_utils.py": "class TFThing: ...\n",
}


def written(folder: Path) -> Package:
    for name, text in FILES.items():
        path = folder / "lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Package(folder, "lib")


def test_names_are_lazy_ones_exported_ones_and_submodules(tmp_path: Path) -> None:
    names = written(tmp_path).api().names
    assert names["lib"] == {
        *("Trainer", "Callback", "Arguments", "More", "LlamaConfig", "LlamaModel"),
        *("utils", "args", "trainer", "models"),
    }
    assert names["lib.utils"] == {"helper", "open_ended", "LIMIT"}
    assert names["lib.trainer"] == {"Trainer", "Callback"}, "what a module imports is not its own"
    assert names["lib.models"] == {"llama"}
    assert names["lib.models.llama"] == {"modeling_llama"}
    assert "lib.modeling_tf_utils" not in names


def test_keywords_are_those_of_signatures_and_of_dataclasses(tmp_path: Path) -> None:
    assert written(tmp_path).api().keywords == {
        "helper": {"a", "b"},
        "Arguments.__init__": {"output_dir", "seed"},
        "More.__init__": {"output_dir", "seed", "generate"},
        "More.device": set(),
        "Trainer.__init__": {"model", "tokenizer"},
        "Trainer.train": {"resume"},
        "Callback.__init__": {"model", "tokenizer"},
        "Callback.train": {"resume"},
    }


def test_attributes_are_inherited_and_set(tmp_path: Path) -> None:
    attributes = written(tmp_path).api().attributes
    assert attributes["Callback"] == {"tokenizer", "train", "log"}
    assert attributes["More"] == {"output_dir", "seed", "chosen", "shared", "generate", "device"}


def test_models_export_by_name(tmp_path: Path) -> None:
    assert written(tmp_path).model_names() == {"llama": {"LlamaConfig", "LlamaModel"}}
