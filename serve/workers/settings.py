"""How workers are started: how many, on which device, with how many threads."""

from pathlib import Path

from berth.serve.workers.worker import WorkerSettings


def worker_settings(model_dir: Path, wanted: int, gpus: int, threads: int, visible: str | None) -> list[WorkerSettings]:
    """One worker for each GPU, or as many as are `wanted`, which share what there is.

    `threads` are those of this host for models; `visible` is CUDA_VISIBLE_DEVICES, which says what GPU 0 is.
    """
    count = wanted or max(1, gpus)
    share = max(1, threads // count)
    if not gpus:
        return [WorkerSettings(model_dir, share, "cpu")] * count
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [
        WorkerSettings(model_dir, share, "cuda", {"CUDA_VISIBLE_DEVICES": names[number % gpus]})
        for number in range(count)
    ]
