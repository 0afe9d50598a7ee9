#!/bin/sh
# Layer deps: the image's Python packages above torch. Those that exist as source only come built, from the stage source.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh
locked() { grep -q "^$1==" /tmp/layer/lock.txt; }
case $IMAGE in
train)
    stripped="pyarrow tokenizers cryptography hf_xet yaml xxhash pandas sklearn PIL pillow.libs torchvision"
    # A build of torchvision for the CPU's torch, which no profile of ours has, lies in the index of that torch.
    if [ -n "$TORCH_INDEX" ] && locked torchvision && ! ls /tmp/layer/wheels/torchvision-*.whl >/dev/null 2>&1; then
        export UV_INDEX="$TORCH_INDEX"
    fi
    ;;
serve) stripped="tokenizers hf_xet yaml" ;;
esac

install_locked
install_wheels /tmp/built/*.whl
# sagemaker-training brings a command of its own called train; the kit's comes with the next layer.
rm -f /opt/berth/bin/train
# NNCF asks for telemetry, which sends figures of each quantisation, and for what its ways through PyTorch compile and draw
# with. As requirements that are missing they would come back with the next package that pip installs in a job.
if [ "$IMAGE" = train ] && locked nncf; then
    sed -i -E '/^Requires-Dist: (openvino-telemetry|ninja|pydot)\b/d' \
        /opt/berth/lib/python3*/site-packages/nncf-*.dist-info/METADATA
fi
# shellcheck disable=SC2086
sh /tmp/layer/prune.sh $stripped
/tmp/tools/uv pip check --python /opt/berth/bin/python
/opt/berth/bin/python - "$TRANSFORMERS" <<'PY'
import sys

import transformers

pinned = sys.argv[1]
assert transformers.__version__ == pinned, f"pinned transformers {pinned}, installed {transformers.__version__}"
PY
if [ "$IMAGE" = train ]; then
    # What of it the software set has.
    for each in evaluate:evaluate pillow:PIL.Image scikit-learn:sklearn.metrics tensorboardx:tensorboardX; do
        ! locked "${each%:*}" || /opt/berth/bin/python -c "import ${each#*:}"
    done
    # Imports, but for its operators, with a torch that it was not built for.
    if locked torchvision; then
        /opt/berth/bin/python -c 'import torch, torchvision; torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)'
    fi
fi
bert="transformers.models.auto transformers.models.bert.modeling_bert transformers.models.bert.tokenization_bert safetensors.torch"
case $IMAGE in
train) set -- transformers.trainer accelerate datasets pyarrow.parquet sagemaker_training.environment mpi4py.run paramiko ;;
serve) set -- starlette.applications uvicorn.protocols.http.h11_impl sagemaker_inference.default_inference_handler ;;
esac
# A software set may lack some of them.
# shellcheck disable=SC2086
there=$(/opt/berth/bin/python - $bert "$@" <<'PY'
import sys
from importlib.util import find_spec


def is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


print(*filter(is_there, sys.argv[1:]))
PY
)
# shellcheck disable=SC2086
/opt/berth/bin/python /tmp/layer/bytecode.py $there
# What sagemaker-training makes where it is imported outside of a job, with the time in its name.
rm -rf /root/sagemaker_local
