#!/bin/sh
# Layer pytorch: torch and what it needs next to NVIDIA's libraries.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

# The CPU build has an index of its own; if docker/wheels has the file, that index, perhaps out of reach, is not asked.
if [ -n "$TORCH_INDEX" ] && ! ls "/tmp/layer/wheels/torch-$TORCH-"*.whl >/dev/null 2>&1; then
    export UV_INDEX="$TORCH_INDEX"
fi
install_locked
sh /tmp/layer/prune.sh torch triton
/opt/berth/bin/python - "$TORCH" <<'PY'
import sys

import torch

# PyPI's build with CUDA has the plain version there, and its CUDA version behind a plus in its own.
assert torch.__version__.startswith(sys.argv[1]), f"pinned torch {sys.argv[1]}, installed {torch.__version__}"
assert torch.distributed.is_gloo_available(), "this torch has no gloo backend"
assert float(torch.ones(3).sum()) == 3.0
PY
/opt/berth/bin/python /tmp/layer/bytecode.py torch torch.distributed torch.nn.parallel torch.optim torch.utils.data \
    torch.distributed.run torch._dynamo
