"""Image classification with a model split over ranks, with SageMaker's model parallel library, version 1.

Reads image folders from the channels `train` and `val`, or makes them. Prints the loss of each epoch, averaged over all
batches, and how many images of `val` are classified correctly.
"""

import argparse
import os

import smdistributed.modelparallel.torch as smp
import torch
from image_folder import configuration, folders
from torch.utils.data import DataLoader, DistributedSampler
from transformers import ViTForImageClassification


@smp.step
def train_step(model: smp.DistributedModel, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss and gradients of one microbatch. The library splits the batch and calls this for each part."""
    loss = torch.nn.functional.cross_entropy(model(images).logits, labels)
    model.backward(loss)
    return loss.detach()


@smp.step
def predict_step(model: smp.DistributedModel, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(images).logits


def right_classes(model: smp.DistributedModel, loader: DataLoader, device: torch.device) -> int:
    """Count the correctly classified images. Every rank must call this, because each has a part of the model."""
    model.eval()
    return sum(
        int((predict_step(model, images.to(device)).concat().argmax(1).cpu() == labels).sum())
        for images, labels in loader
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=32, help="over all ranks with a batch of their own")
    parser.add_argument("--learning_rate", type=float, default=0.01)
    arguments, _ = parser.parse_known_args()  # some launchers also pass --mp_parameters, which smp.init reads itself

    smp.init()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(smp.local_rank())
        device = torch.device("cuda", smp.local_rank())

    training, checking = folders()
    torch.manual_seed(0)
    # With the option tensor_parallel_degree the library splits the layers that are created here.
    with smp.tensor_parallelism(enabled=smp.tp_size() > 1):
        model = ViTForImageClassification(configuration(training.classes))
    model = smp.DistributedModel(model)
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), arguments.learning_rate, momentum=0.9))
    # All ranks of a pipeline get the same batches, because each of them must call each step. Replicas and tensor
    # parallel ranks get different ones.
    sampler = DistributedSampler(training, smp.dp_size(), smp.dp_rank())
    loader = DataLoader(training, batch_size=arguments.batch_size // smp.dp_size(), sampler=sampler, drop_last=True)
    if not len(loader):
        raise SystemExit(
            f"a batch of {arguments.batch_size} is larger than {len(training)} images: reduce --batch_size."
        )
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros((), device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            losses = train_step(model, images.to(device), labels.to(device))
            optimizer.step()
            total += losses.reduce_mean() / len(loader)
        means = smp.allgather(total.item(), smp.DP_GROUP)
        if smp.rank() == 0:
            print(f"epoch {epoch + 1}: loss {sum(means) / len(means):.6f}", flush=True)

    whole = DataLoader(checking, batch_size=smp.num_microbatches(), drop_last=True)
    right = right_classes(model, whole, device)
    weights = model.state_dict()  # gathers all partitions; every rank must call it
    if smp.rank() == 0:
        print(f"right classes: {right} of {len(whole) * smp.num_microbatches()}", flush=True)
        model.module.save_pretrained(os.environ.get("SM_MODEL_DIR", "model"), state_dict=weights)


if __name__ == "__main__":
    main()
