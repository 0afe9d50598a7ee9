"""Runs in each rank of a launch: checkpoints of real models, loaded into new ones and compared to the last bit."""

import pathlib
import shutil

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch import files

KIND, SIZE = "bert", 8


class Run:
    """A new wrapped model and optimizer, and their training."""

    def __init__(self, dropout=0.0, **options):
        pipeline_cases.start({"partitions": 2, "microbatches": 2, "ddp": True, "deterministic_server": True, **options})
        self.plain = pipeline_models.build(KIND)
        for each in self.plain.modules():
            if isinstance(each, torch.nn.Dropout):
                each.p = dropout
        self.model = smp.DistributedModel(self.plain)
        self.optimizer = smp.DistributedOptimizer(pipeline_cases.optimizer_of(self.model))

    def train(self, seeds, parts=None):
        """Train; the microbatches' losses. A replica gets its part of the batch, or all of it if `parts` is 1."""
        parts = smp.dp_size() if parts is None else parts

        @smp.step
        def train_step(model, *tensors):
            loss = pipeline_models.call(KIND, model, tensors)[1]
            model.backward(loss)
            return loss

        losses = []
        for seed in seeds:
            self.optimizer.zero_grad()
            tensors = [each.chunk(parts)[smp.dp_rank() % parts] for each in pipeline_models.batch(KIND, seed, SIZE)]
            losses.append(train_step(self.model, *tensors).stack())
            self.optimizer.step()
        return torch.stack(losses)

    def results(self):
        """Parameters and momentum of all partitions. Every rank of a replica must call it."""
        states = self.optimizer.state_dict()["state"]
        return {"parameters": self.model.state_dict(), "momentum": {n: e["momentum_buffer"] for n, e in states.items()}}


def alike(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def same(results, expected):
    """Whether two results are bit-equal and not empty."""
    assert len(expected["parameters"]) == len(expected["momentum"]) > 50
    return all(alike(results[name], expected[name]) for name in ("parameters", "momentum"))


def save_all(folder, run):
    """Save in every way after the third step."""
    for partial in (True, False):
        smp.save_checkpoint(folder, "third", partial, run.model, run.optimizer, {"step": 3})
    if smp.rdp_rank() == 0:
        own = {"model": run.model.local_state_dict(), "optimizer": run.optimizer.local_state_dict()}
        smp.save(own, f"{folder}/plain", partial=True)
        whole = {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}
        smp.save(whole, f"{folder}/plain", partial=False)
    smp.barrier()


def resume(folder, run, way):
    if way.startswith("checkpoint"):
        assert smp.resume_from_checkpoint(folder, "third", partial=way.endswith("partial")) == {"step": 3}
    else:
        loaded = smp.load(f"{folder}/plain", partial=way.endswith("partial"))
        run.model.load_state_dict(loaded["model"])
        run.optimizer.load_state_dict(loaded["optimizer"])


WAYS = ("checkpoint partial", "checkpoint full", "plain partial", "plain full")


def resumes(folder, expected):
    """Compare 3 + 3 steps with 6 steps, loading before the first step or after the partition."""
    equal = {}
    # With replicas, `more_replicas` tests every way.
    ways = (*WAYS, "checkpoint partial, partitioned", "plain full, partitioned") if smp.size() == 2 else WAYS[:2]
    for way in ways:
        run = Run()
        if way.endswith("partitioned"):
            run.train([7])
        resume(folder, run, way.partition(",")[0])
        losses = run.train(range(3, 6))
        equal[way] = [torch.equal(losses, expected["losses"][3:]), same(run.results(), expected)]
    return equal


def resumes_dropout(folder):
    """Dropout must continue with the same random numbers."""
    run = Run(dropout=0.2)
    expected = run.train(range(4))
    run = Run(dropout=0.2)
    run.train(range(2))
    smp.save_checkpoint(f"{folder}/dropout", "second", model=run.model, optimizer=run.optimizer)
    smp.barrier()
    run = Run(dropout=0.2)
    smp.resume_from_checkpoint(f"{folder}/dropout")
    losses = run.train(range(2, 4))
    assert not torch.equal(expected[2:], Run().train(range(4))[2:])
    return torch.equal(losses, expected[2:])


def more_replicas(folder, expected):
    """Resume in other processes with more replicas. All get the same batch, so the results are equal."""
    equal = {}
    for way in WAYS:
        run = Run()
        resume(folder, run, way)
        losses = run.train(range(3, 6), parts=1)
        equal[way] = [torch.equal(losses, expected["losses"][3:]), same(run.results(), expected)]
    return equal


def saved_again(folder):
    """Save directly after resuming, without a step."""
    results = []
    for way in ("checkpoint partial", "checkpoint full"):
        run = Run()
        resume(folder, run, way)
        for partial in (True, False):
            smp.save_checkpoint(f"{folder}/again", "third", partial, run.model, run.optimizer, {"step": 3})
        smp.barrier()
        for again in ("checkpoint partial", "checkpoint full"):
            run = Run()
            resume(f"{folder}/again", run, again)
            run.model.partition()
            results.append(run.results())
    return results


def one_process():
    """Parameters and momentum of one process without the library after three steps."""
    alone = pipeline_cases.OneProcess(KIND, 2 * smp.dp_size(), SIZE, 3, pipeline_cases.RATE)
    return {"parameters": alone.parameters, "momentum": alone.momentum}


def pretrained(folder, run):
    """Load a full checkpoint with transformers; returns the names of tensors that differ."""
    smp.save_checkpoint(f"{folder}/pretrained", "pytorch_model.bin", partial=False, model=run.model)
    smp.barrier()
    if smp.rank() == 0:
        run.plain.config.save_pretrained(f"{folder}/pretrained")
    smp.barrier()
    loaded, report = type(run.plain).from_pretrained(f"{folder}/pretrained", output_loading_info=True)
    assert not any(report.values()), report
    whole = run.model.state_dict()
    return [name for name, each in loaded.state_dict().items() if not torch.equal(each, whole[name])]


def refused(folder):
    """The errors of checkpoints that can't be loaded or saved."""
    Run(partitions=4 if smp.size() == 4 else 1)
    errors = {"degrees": pipeline_cases.raised(smp.resume_from_checkpoint, folder, "third")}
    pipeline_cases.start({"partitions": 2})
    errors["no model"] = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "third")
    smp.DistributedModel(pipeline_models.build(KIND))
    errors["no optimizer"] = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "third", partial=False)
    assert smp.resume_from_checkpoint(folder, "third", load_optimizer=False) == {"step": 3}
    run = Run()
    errors["missing"] = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "fourth")
    errors["no newest"] = pipeline_cases.raised(smp.resume_from_checkpoint, f"{folder}/nowhere")
    if smp.rank() == 0:
        shutil.copytree(f"{folder}/third_partial", f"{folder}/lost_partial")
        pathlib.Path(folder, "lost_partial", "model_1_0.pt").unlink()
        shutil.copytree(f"{folder}/third_partial", f"{folder}/other_partial")
        pathlib.Path(folder, "other_partial", "manifest.json").unlink()
    smp.barrier()
    errors["a part is lost"] = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "lost")
    errors["no manifest"] = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "other")
    errors["plain model"] = pipeline_cases.raised(smp.save_checkpoint, folder, "x", model=run.plain)
    errors["content"] = pipeline_cases.raised(
        smp.save_checkpoint, folder, "x", model=run.model, user_content=lambda: None
    )
    run.train([0])
    partial = smp.DistributedOptimizer(torch.optim.SGD(run.model.local_parameters(), lr=0.1))
    errors["optimizer of one rank"] = pipeline_cases.raised(partial.state_dict)
    errors["optimizer"] = pipeline_cases.raised(
        run.optimizer.load_state_dict, {**run.optimizer.local_state_dict(), "_smp_partitions": 3}
    )
    return errors


def interrupted(folder, expected):
    """If one rank can't write, all raise; the old checkpoint remains, and the next one can be saved."""
    folder, before = f"{folder}/interrupted", folder
    if smp.rank() == 0:
        shutil.copytree(f"{before}/third_partial", f"{folder}/third_partial")
    run = Run()
    run.train([8])
    plain = files.write
    if smp.mp_rank() == 1:
        files.write = fails
    try:
        message = pipeline_cases.raised(smp.save_checkpoint, folder, "third", model=run.model, optimizer=run.optimizer)
    finally:
        files.write = plain
    smp.barrier()
    run = Run()
    resume(folder, run, "checkpoint partial")
    whole = torch.equal(run.train(range(3, 6)), expected["losses"][3:])
    stale = pathlib.Path(folder, ".third_partial.incomplete")
    leftovers = stale.is_dir()
    if smp.rank() == 0:
        stale.mkdir(exist_ok=True)
        (stale / "model_7_0.pt").write_text("of a job of 8 partitions")
    smp.barrier()
    smp.save_checkpoint(folder, "third", model=run.model, optimizer=run.optimizer)
    smp.barrier()
    names = sorted(path.name for path in pathlib.Path(folder, "third_partial").iterdir())
    return message or "another replica's", whole, leftovers, names


def fails(value, path, **_):
    raise OSError(28, "No space left on device")


def pruned(folder, run):
    """The two newest of four partial checkpoints, and a full one, are kept."""
    for tag in range(4):
        for partial in (True, False):
            smp.save_checkpoint(
                f"{folder}/pruned", tag, partial, run.model, user_content=tag, num_kept_partial_checkpoints=2
            )
    smp.barrier()
    newest = smp.resume_from_checkpoint(f"{folder}/pruned")
    return newest, sorted(path.name for path in pathlib.Path(folder, "pruned").glob("*_partial"))


def all_of(folder):
    """Run everything above in one launch."""
    one_go = Run()
    expected = {"losses": one_go.train(range(6)), **one_go.results()}
    run = Run()
    run.train(range(3))
    save_all(folder, run)
    saved = run.results()
    return {
        "expected": expected,
        "saved": saved,
        "one process": one_process(),
        "file": alike(torch.load(f"{folder}/third", weights_only=True), saved["parameters"]),
        "pretrained": pretrained(folder, run),
        "pruned": pruned(folder, run),
        "resumes": resumes(folder, expected),
        "dropout": resumes_dropout(folder),
        "again": [same(each, saved) for each in saved_again(folder)],
        "refused": refused(folder),
        "interrupted": interrupted(folder, expected),
    }
