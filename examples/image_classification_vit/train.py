"""Image classification over several ranks with SageMaker's data parallel library, version 1.

Reads image folders from the channels `train` and `val`, or makes them. Prints the loss of each epoch, averaged over all
ranks, and how many images of `val` are classified correctly.
"""

import argparse
import os

import smdistributed.dataparallel.torch.distributed as dist
import torch
from image_folder import configuration, folders
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import ViTForImageClassification


def right_classes(model: torch.nn.Module, loader: DataLoader, device: torch.device) -> int:
    """Count the correctly classified images."""
    model.eval()
    with torch.no_grad():
        return sum(int((model(images.to(device)).logits.argmax(1).cpu() == labels).sum()) for images, labels in loader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning_rate", type=float, default=0.01)
    arguments = parser.parse_args()

    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(dist.get_local_rank())
        device = torch.device("cuda", dist.get_local_rank())

    training, checking = folders()
    torch.manual_seed(0)
    # Without DistributedDataParallel each rank would train its own model, without an error.
    model = DistributedDataParallel(ViTForImageClassification(configuration(training.classes)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), arguments.learning_rate, momentum=0.9)
    sampler = DistributedSampler(training, ranks, rank)
    loader = DataLoader(training, batch_size=max(arguments.batch_size // ranks, 1), sampler=sampler)
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(1, device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = model(pixel_values=images.to(device), labels=labels.to(device)).loss
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total, op=dist.ReduceOp.AVERAGE)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item():.6f}", flush=True)

    if rank == 0:
        right = right_classes(model.module, DataLoader(checking, batch_size=arguments.batch_size), device)
        print(f"right classes: {right} of {len(checking)}", flush=True)
        model.module.save_pretrained(os.environ.get("SM_MODEL_DIR", "model"))
    dist.barrier()


if __name__ == "__main__":
    main()
