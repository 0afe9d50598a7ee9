#!/bin/sh
# Layer pytorch: torch and its dependencies except NVIDIA's libraries.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

# The CPU build has its own index; it is not used if docker/wheels has the file, because it may be unreachable.
if [ -n "$TORCH_INDEX" ] && ! ls "/tmp/layer/wheels/torch-$TORCH-"*.whl >/dev/null 2>&1; then
    export UV_INDEX="$TORCH_INDEX"
fi
install_locked
sh /tmp/layer/prune.sh torch triton
/opt/berth/bin/python - "$TORCH" <<'PY'
import sys

import torch

# PyPI's build with CUDA is pinned without a suffix, but __version__ ends in + and the CUDA version.
assert torch.__version__.startswith(sys.argv[1]), f"pinned torch {sys.argv[1]}, installed {torch.__version__}"
assert torch.distributed.is_gloo_available(), "this torch has no gloo backend"
assert float(torch.ones(3).sum()) == 3.0
PY
/opt/berth/bin/python /tmp/layer/bytecode.py torch torch.distributed torch.nn.parallel torch.optim torch.utils.data \
    torch.distributed.run torch._dynamo
