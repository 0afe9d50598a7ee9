"""A double of NCCL for tensors on the CPU, as a backend of torch.distributed. It blocks as NCCL does:

- The first use of a process group waits on the host until the other ranks use it as well.
- A rank's operations, of all its process groups, run one after the other in the order in which they were started. If
  two ranks start them in different orders, both wait forever.
- `wait()` returns at once. The host waits where it reads a result. Before `wait()`, a result contains garbage.
- The loss of a rank raises nothing.

`register()` makes the backend `nccl-double` known. It replaces methods of torch.Tensor and threading.Thread, so it is
for processes that only run a test. gloo moves the data.
"""

import queue
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAME = "nccl-double"
_FOREVER = timedelta(hours=1)
_GARBAGE = 0xDB


class Operation(dist._Work):
    """One operation of a process group. tensors: those that it uses. results: their new values, None if it has none."""

    def __init__(self, run, tensors):
        super().__init__()
        self.run, self.tensors, self.results = run, list(tensors), None
        self.waited, self.done = False, threading.Event()

    def wait(self, timeout=None):
        """What reads the tensor from now on waits for the operation; the caller does not."""
        self.waited = True
        return True

    def is_completed(self):
        """Whether the operation has run."""
        return self.done.is_set()


class Stream:
    """Runs all operations of this process in order, and keeps those whose results were not read yet."""

    def __init__(self):
        self._operations, self._lock = queue.SimpleQueue(), threading.RLock()
        self._unread = {}
        thread = threading.Thread(target=self._work, name=NAME, daemon=True)
        thread.run = self._work  # without the mode of other threads
        thread.start()

    def start(self, operation):
        """Run an operation after all earlier ones; returns at once."""
        with self._lock:
            for tensor in operation.tensors:
                self._unread.setdefault(_place(tensor), []).append(operation)
        self._operations.put(operation)
        return operation

    def read(self, tensors):
        """Wait for the operations on these tensors that were waited for, and store their results."""
        if not self._unread:
            return
        for tensor in tensors:
            place = _place(tensor)
            with self._lock:
                waited = [each for each in self._unread.get(place, ()) if each.waited]
            for operation in waited:
                operation.done.wait()
                self._store(operation)

    def _store(self, operation):
        with self._lock, mode_off():
            for place, tensor in enumerate(operation.tensors):
                left = self._unread.get(_place(tensor), [])
                if operation in left:
                    left.remove(operation)
                    if operation.results is not None:
                        tensor.copy_(operation.results[place])
                if not left:
                    self._unread.pop(_place(tensor), None)

    def _work(self):
        while True:
            operation = self._operations.get()
            try:
                operation.results = operation.run()
            except RuntimeError:  # a rank is gone; nobody is told
                threading.Event().wait()
            operation.done.set()


def _place(tensor):
    """The address of a tensor's memory, 0 if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def _spoil(tensor):
    """Fill a tensor with garbage."""
    tensor.reshape(-1).view(torch.uint8).fill_(_GARBAGE)


class ReadsWait(TorchDispatchMode):
    """In this mode every operation of torch first waits for the transfers whose results it uses."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Called by torch for every operation."""
        STREAM.read(each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor))
        return function(*args, **(kwargs or {}))


def mode_off():
    """A context without ReadsWait."""
    return torch.utils._python_dispatch._disable_current_modes()


class NcclDouble(dist.ProcessGroup):
    """A process group of the backend."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._where, self._gloo, self._lock = (store, rank, size), None, threading.Lock()
        self._name = ""

    @property
    def group_name(self):
        """For torch."""
        return self._name

    def _set_group_name(self, name):
        self._name = name

    def getBackendName(self):
        """For torch."""
        return NAME

    def _start(self, run, tensors):
        with self._lock:
            if self._gloo is None:  # waits for the other ranks
                self._gloo = dist.ProcessGroupGloo(*self._where, _FOREVER)
        return STREAM.start(Operation(run, tensors))

    def _in_place(self, name, tensor, options):
        """Start a collective operation that replaces a tensor."""
        with mode_off():
            STREAM.read([tensor])
            copy = tensor.clone()
            _spoil(tensor)

        def run():
            getattr(self._gloo, name)([copy], options).wait()
            return [copy]

        return self._start(run, [tensor])

    def allreduce(self, tensors, options):
        """Sum, or another reduction."""
        return self._in_place("allreduce", tensors[0], options)

    def broadcast(self, tensors, options):
        """Copy from one rank to all."""
        return self._in_place("broadcast", tensors[0], options)

    def allgather(self, outputs, inputs, options):
        """Every rank's tensor on all ranks."""
        (received,), (own,) = outputs, inputs
        with mode_off():
            STREAM.read([own])
            copy, parts = own.clone(), [torch.empty_like(each) for each in received]
            for each in received:
                _spoil(each)

        def run():
            self._gloo.allgather([parts], [copy], options).wait()
            return parts

        return self._start(run, received)

    def _into(self, name, output, own, options):
        """Start a collective operation from one tensor into another."""
        with mode_off():
            STREAM.read([own])
            copy, received = own.clone(), torch.empty_like(output)
            _spoil(output)

        def run():
            getattr(self._gloo, name)(received, copy, options).wait()
            return [received]

        return self._start(run, [output])

    def all_gather_single(self, output, own, options):
        """Every rank's tensor on all ranks, one after the other in one tensor."""
        return self._into("_allgather_base", output, own, options)

    def reduce_scatter_single(self, output, own, options):
        """This rank's part of the sum of all ranks' tensors."""
        return self._into("_reduce_scatter_base", output, own, options)

    def send(self, tensors, destination, tag):
        """Send to a rank. The tensor is read when the operation runs."""
        with mode_off():
            STREAM.read(tensors)
        return self._start(lambda: self._gloo.send(tensors, destination, 0).wait() and None, tensors)

    def recv(self, tensors, source, tag):
        """Receive from a rank."""
        (tensor,) = tensors
        with mode_off():
            received = torch.empty_like(tensor)
            _spoil(tensor)

        def run():
            self._gloo.recv([received], source, 0).wait()
            return [received]

        return self._start(run, tensors)


def _reading(method):
    """A method of torch.Tensor that reads the tensor without an operation of torch."""

    def reads(tensor, *args, **kwargs):
        STREAM.read([tensor])
        return method(tensor, *args, **kwargs)

    return reads


def _in_mode(run):
    """threading.Thread.run in ReadsWait."""

    def runs(thread):
        with ReadsWait():
            run(thread)

    return runs


def _gather(tensor, gather_dim, group, tag=""):
    """DTensor's all-gather, whose own form needs a process group in C++."""
    group = dist.distributed_c10d._resolve_process_group(functional._resolve_group_name(group, tag))
    parts = [torch.empty_like(tensor) for _ in range(group.size())]
    dist.all_gather(parts, tensor.contiguous(), group=group)
    return torch.cat(parts, gather_dim)


def register():
    """Make the backend known, and let all threads of this process wait where they read."""
    global STREAM
    STREAM = Stream()
    for name in ("tolist", "numpy", "__array__"):
        setattr(torch.Tensor, name, _reading(getattr(torch.Tensor, name)))
    threading.Thread.run = _in_mode(threading.Thread.run)
    ReadsWait().__enter__()
    functional.all_gather_single = _gather
    dist.Backend.register_backend(NAME, NcclDouble, devices=["cpu"])
