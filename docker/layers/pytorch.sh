#!/bin/sh
# Layer pytorch: torch and what it needs next to NVIDIA's libraries.
# Usage: pytorch.sh TORCH INDEX
set -eu
# shellcheck source=docker/layers/network.sh
. /tmp/tools/network.sh
torch=$1 index=$2

# The CPU build has an index of its own; where docker/wheels has the file, that index, perhaps out of reach, is not asked.
if [ -n "$index" ] && ! ls "/tmp/wheels/torch-$torch-"*.whl >/dev/null 2>&1; then
    export UV_INDEX="$index"
fi
install_locked
/tmp/tools/prune.sh torch triton
/opt/berth/bin/python - "$torch" <<'PY'
import sys

import torch

# PyPI's build with CUDA has the plain version there, and its CUDA version behind a plus in its own.
assert torch.__version__.startswith(sys.argv[1]), f"pinned torch {sys.argv[1]}, installed {torch.__version__}"
assert torch.distributed.is_gloo_available(), "this torch has no gloo backend"
assert float(torch.ones(3).sum()) == 3.0
PY
/opt/berth/bin/python /tmp/tools/bytecode.py torch torch.distributed torch.nn.parallel torch.optim torch.utils.data \
    torch.distributed.run torch._dynamo
