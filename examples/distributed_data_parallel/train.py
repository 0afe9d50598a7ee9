"""Train a small network with DistributedDataParallel, on one process or on many ranks, with or without GPUs.

Makes its own data: points in a plane, and whether they are inside a circle. Prints the loss of each epoch, and how many
of 1,000 new points get the right side.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def points(count: int, seed: int) -> TensorDataset:
    """Points (count × 2) and their labels (count × 1), the same in every process."""
    positions = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return TensorDataset(positions, (positions.norm(dim=1, keepdim=True) < 0.8).float())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch_size", type=int, default=64, help="over all ranks")
    arguments = parser.parse_args()

    # The launcher sets RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR. Without one this is a group of one process.
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}.items():
        os.environ.setdefault(name, value)
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if has_gpu else "gloo")
    if has_gpu:
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = points(4096, seed=1)
    sampler = DistributedSampler(data, seed=2)
    loader = DataLoader(data, batch_size=arguments.batch_size // dist.get_world_size(), sampler=sampler)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for positions, inside in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(positions.to(device)), inside.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / dist.get_world_size():.4f}", flush=True)

    if dist.get_rank() == 0:  # one rank saves
        positions, inside = (each.to(device) for each in points(1000, seed=3).tensors)
        right = int(((network(positions) > 0) == inside.bool()).sum())
        print(f"right side: {right} of 1000", flush=True)
        torch.save(network.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
