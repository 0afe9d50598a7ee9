"""Writes layer_modules.json: the modules of layers in the versions of transformers that the images have.

Run it again after a change of a version in docker/pins.toml. For the version in .venv:

    .venv/bin/python smdistributed/tests/layer_modules.py

For another one, with the versions of tokenizers and huggingface-hub from the lock file of its profile:

    .venv/bin/pip install --no-deps --target FOLDER transformers==4.26.0 tokenizers==0.13.3 huggingface-hub==0.25.2
    PYTHONPATH=FOLDER .venv/bin/python smdistributed/tests/layer_modules.py
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

PATH = Path(__file__).with_suffix(".json")
KINDS = {
    "BertLayer": "bert",
    "RobertaLayer": "roberta",
    "ViTLayer": "vit",
    "GPT2Block": "gpt2",
    "GPTJBlock": "gptj",
    "GPTNeoXLayer": "neox",
    "LlamaDecoderLayer": "llama",
    "BloomBlock": "bloom",
    "FalconDecoderLayer": "falcon",
    "T5Block": "t5",
}
"""Class of a layer → a model in pipeline_models that has it."""
Layers = dict[str, dict[str, str]]


def read() -> dict[str, Layers]:
    """Version → class of a layer → path of a module → its class and its numbers."""
    table: dict[str, Layers] = json.loads(PATH.read_text())
    return table


def layers_of_installed_version() -> Layers:
    """What `read` has for the version that is installed. Layers that it lacks are left out."""
    import pipeline_models  # slow, and not needed to read the table

    layers: Layers = {}
    for kind, name in KINDS.items():
        try:
            model = pipeline_models.build(name)
        except AttributeError:
            continue
        layer = next(each for each in model.modules() if type(each).__name__ == kind)
        table = getattr(model.config, "base_model_tp_plan", None) or {}
        texts = {path: _text(each, table.get(f"layers.*.{path}")) for path, each in layer.named_modules()}
        layers[kind] = {path: text for path, text in texts.items() if " " in text}
    return layers


def _text(module: nn.Module, plan: str | None) -> str:
    """A module's class and its numbers, those of its configuration, and how transformers splits it."""
    config = vars(module).get("config")
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    numbers = _numbers(vars(module)) | _numbers({f"config.{name}": getattr(config, name, None) for name in names})
    words = [type(module).__name__, *(f"{name}={value}" for name, value in numbers.items())]
    return " ".join([*words, f"plan={plan}"] if plan else words)


def _numbers(attributes: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in attributes.items() if type(value) is int}


def stand_in(kind: str, modules: Mapping[str, str]) -> tuple[nn.Module, dict[str, str]]:
    """A layer that has the modules and numbers of a table's layer, and transformers' plan for it."""
    layer, plan = _module(kind), {}
    for path, text in modules.items():
        name, *words = text.split()
        module = _added(layer, path, name) if path else layer
        config = SimpleNamespace()
        for key, value in (word.split("=") for word in words):
            if key == "plan":
                plan[path] = value
            else:
                setattr(config if key.startswith("config.") else module, key.removeprefix("config."), int(value))
        if vars(config):
            module.config = config  # type: ignore[assignment]
    return layer, plan


def _module(kind: str) -> nn.Module:
    made: nn.Module = type(kind, (nn.Module,), {})()
    return made


def _added(layer: nn.Module, path: str, kind: str) -> nn.Module:
    """A new module at a path, with those above it."""
    *above, name = path.split(".")
    for each in above:
        if each not in layer._modules:
            layer.add_module(each, nn.Module())
        layer = layer.get_submodule(each)
    if name not in layer._modules:
        layer.add_module(name, _module(kind))
    return layer.get_submodule(name)


def main() -> None:
    """Write the installed version into the table."""
    import transformers

    table = read() if PATH.is_file() else {}
    table[transformers.__version__] = layers_of_installed_version()
    PATH.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
