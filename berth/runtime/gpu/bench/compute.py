"""Checks of single GPUs: a matrix product and a training step, with random data and weights.

The matrix product runs on every GPU of the host, the step only on the first. On `cpu` everything is small, to test the
check itself.
"""

from typing import Any

from berth.contract import gpu_hosts
from berth.runtime.gpu.bench import peaks, timing
from berth.runtime.gpu.bench.record import Measured

SIDE = {"cuda": 8192, "cpu": 256}  # rows and columns of a matrix: large enough to keep any current chip busy
TOLERANCE = 1e-2  # relative error of a 16-bit product
BATCH, WINDOW = {"cuda": 8, "cpu": 2}, {"cuda": 384, "cpu": 32}
# The sizes of BERT-large (Devlin et al. 2019, section 3), and of a small model to test the check.
BERT: dict[str, dict[str, Any]] = {
    "cuda": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "cpu": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128},
}


def precision(device: str, index: int = 0) -> Any:
    """The 16-bit torch.dtype that the device's tensor cores support."""
    import torch

    capability = torch.cuda.get_device_capability(index) if device == "cuda" else (8, 0)
    return torch.bfloat16 if gpu_hosts.supports_bf16(capability) else torch.float16


def matrix_product(device: str) -> Measured:
    """TFLOP/s (2·n³ operations) of a 16-bit product of two n × n matrices; the limit is the chip's dense peak.

    With several GPUs it is the value of the slowest. ArithmeticError if a product is wrong.
    """
    import torch

    count = torch.cuda.device_count() if device == "cuda" else 1
    names = [torch.cuda.get_device_name(index) for index in range(count)] if device == "cuda" else ["CPU"]
    figures = [_product(device, index) for index in range(count)]
    slowest = figures.index(min(figures))
    chip = peaks.chip(names[slowest])
    kind = str(precision(device, slowest)).removeprefix("torch.")
    note = f"{kind}, {SIDE[device]} × {SIDE[device]}"
    if count > 1:
        note += f", GPU {slowest}, the slowest of {count}"
    return Measured(
        figures[slowest],
        "TFLOP/s",
        limit=chip.tflops if chip else None,
        enough=chip.enough if chip else 0.0,
        note=note,
        details={
            "dtype": kind,
            "side": SIDE[device],
            "tflops": figures,
            "device": names[slowest],
            "peak_source": chip.source if chip else None,
        },
    )


def _product(device: str, index: int) -> float:
    import torch

    if device == "cuda":
        torch.cuda.set_device(index)
    side, dtype = SIDE[device], precision(device, index)
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    rows = slice(0, 64)
    expected = left[rows].float() @ right.float()
    error = _relative_error((left @ right)[rows].float(), expected)
    if not error < TOLERANCE:
        raise ArithmeticError(f"the product is wrong: its relative error is {error:.2g}, more than {TOLERANCE}")
    return 2 * side**3 / timing.seconds_of(lambda: left @ right, device) / 1e12


def training_step(device: str) -> Measured:
    """Milliseconds of a training step of a BERT-large for question answering: 8 windows of 384 tokens, autocast, AdamW.

    ArithmeticError if a loss is not finite.
    """
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    dtype = precision(device)
    config = BertConfig(**BERT[device])
    model: Any = BertForQuestionAnswering(config)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    shape = BATCH[device], WINDOW[device]
    ids = torch.randint(config.vocab_size, shape, device=device)
    start, end = (torch.randint(shape[1], shape[:1], device=device) for _ in range(2))
    losses: list[Any] = []

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=dtype):
            output = model(input_ids=ids, start_positions=start, end_positions=end)
        scaler.scale(output.loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(output.loss.detach())

    seconds = timing.seconds_of(step, device)
    if not bool(torch.isfinite(torch.stack(losses)).all()):
        raise ArithmeticError("the loss of a training step is not finite")
    tokens = shape[0] * shape[1] / seconds
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
    kind = str(dtype).removeprefix("torch.")
    note = f"{kind} autocast, {shape[0]} × {shape[1]} tokens, {tokens:.0f} tokens/s"
    if peak is not None:
        note += f", peak {peak:.1f} GB"
    return Measured(
        seconds * 1e3,
        "ms",
        note=note,
        details={
            "dtype": kind,
            "parameters": sum(each.numel() for each in model.parameters()),
            "batch": shape[0],
            "tokens": shape[1],
            "tokens_per_s": tokens,
            "peak_memory_bytes": None if peak is None else int(peak * 1e9),
            "steps": len(losses),
            "loss_first": losses[0].item(),
            "loss_last": losses[-1].item(),
        },
    )


def _relative_error(found: Any, wanted: Any) -> float:
    """|found - wanted| / |wanted|, in the 2-norm; NaN if one of them is."""
    return float((found - wanted).norm() / wanted.norm())
