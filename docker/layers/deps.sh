#!/bin/sh
# Layer deps: the image's Python packages above torch. The stage source has built those that exist only as source.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh
locked() { grep -q "^$1==" /tmp/layer/lock.txt; }
case $IMAGE in
train)
    stripped="pyarrow tokenizers cryptography hf_xet yaml xxhash pandas sklearn PIL pillow.libs torchvision"
    # A torchvision for the CPU's torch, which only users' profiles have, is in that torch's index.
    if [ -n "$TORCH_INDEX" ] && locked torchvision && ! ls /tmp/layer/wheels/torchvision-*.whl >/dev/null 2>&1; then
        export UV_INDEX="$TORCH_INDEX"
    fi
    ;;
serve) stripped="tokenizers hf_xet yaml" ;;
esac

install_locked
install_wheels /tmp/built/*.whl
# sagemaker-training installs its own command `train`; berth's comes with the next layer.
rm -f /opt/berth/bin/train
# NNCF requires telemetry, which sends figures of each quantisation, and tools with which its PyTorch code compiles and
# draws. Remove these requirements, or the next `pip install` in a job would install them.
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
    # Import those of these packages that the software set has.
    for each in evaluate:evaluate pillow:PIL.Image scikit-learn:sklearn.metrics tensorboardx:tensorboardX; do
        ! locked "${each%:*}" || /opt/berth/bin/python -c "import ${each#*:}"
    done
    # torchvision imports even with a torch that it was not built for, but then it lacks its operators.
    if locked torchvision; then
        /opt/berth/bin/python -c 'import torch, torchvision; torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)'
    fi
fi
bert="transformers.models.auto transformers.models.bert.modeling_bert transformers.models.bert.tokenization_bert safetensors.torch"
case $IMAGE in
train) set -- transformers.trainer accelerate datasets pyarrow.parquet sagemaker_training.environment mpi4py.run paramiko ;;
serve) set -- starlette.applications uvicorn.protocols.http.h11_impl sagemaker_inference.default_inference_handler ;;
esac
# Compile only the modules that are installed: a software set may lack some of them.
# shellcheck disable=SC2086
installed=$(/opt/berth/bin/python - $bert "$@" <<'PY'
import sys
from importlib.util import find_spec


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


print(*filter(is_installed, sys.argv[1:]))
PY
)
# shellcheck disable=SC2086
/opt/berth/bin/python /tmp/layer/bytecode.py $installed
# sagemaker-training makes this folder when it is imported outside a job. Its content has a time in its name.
rm -rf /root/sagemaker_local
