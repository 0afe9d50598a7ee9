#!/bin/sh
# Layer openvino: OpenVINO's runtime for CPUs and its converter of PyTorch models, and numpy, which it can't be imported
# without. Empty for an image that has no use of it.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ "$OPENVINO" = none ]; then
    exit 0
fi
install_locked
sh /tmp/layer/prune.sh

site=$(echo /opt/berth/lib/python3*/site-packages)
# Its telemetry, which is in no lock, sends usage figures at each import and conversion. As a requirement that is missing
# it would come back with the next package that pip installs in a job and that asks for openvino.
sed -i '/^Requires-Dist: openvino-telemetry\b/d' "$site"/openvino-*.dist-info/METADATA
# Of its libraries these stay: what reads, converts, compiles and runs a model on a CPU. Not the plugins for Intel's GPUs
# (and a table of their kernels) and NPUs, those that choose between devices or gather batches, and the C API. TBB asks
# for tbbbind, and that for hwloc, to know the nodes of a large host.
find "$site/openvino/libs" -type f ! -name 'libopenvino.so.*' ! -name libopenvino_intel_cpu_plugin.so \
    ! -name 'libopenvino_ir_frontend.so.*' ! -name 'libopenvino_pytorch_frontend.so.*' \
    ! -name 'libtbb.so.*' ! -name 'libtbbbind_*.so.*' ! -name 'libtbbmalloc.so.*' ! -name 'libhwloc.so.*' -delete
# The readers of other frameworks' files, headers, and commands for these and for measuring.
rm -r "$site/openvino/frontend/onnx" "$site/openvino/frontend/tensorflow" "$site/openvino/frontend/paddle" \
    "$site/openvino/frontend/jax" "$site/openvino/include" "$site/openvino/cmake" "$site/openvino/tools/benchmark" \
    /opt/berth/bin/ovc /opt/berth/bin/benchmark_app

/opt/berth/bin/python - "$OPENVINO" <<'PY'
import sys
from importlib.util import find_spec

import openvino
import torch

assert openvino.__version__.startswith(f"{sys.argv[1]}-"), f"pinned {sys.argv[1]}, installed {openvino.__version__}"
assert find_spec("openvino_telemetry") is None, "openvino-telemetry is installed"
model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2), torch.nn.GELU()).eval()
tokens = torch.arange(8).reshape(2, 4)
graph = openvino.convert_model(model, example_input=tokens[:1, :3])
openvino.save_model(graph, "/tmp/graph.xml", compress_to_fp16=False)
# Left to itself, a processor that knows bfloat16 computes in it.
compiled = openvino.Core().compile_model("/tmp/graph.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
assert torch.allclose(torch.from_numpy(compiled(tokens.numpy())[0]), model(tokens), atol=1e-4), "not what torch computes"
PY
/opt/berth/bin/python /tmp/layer/bytecode.py openvino openvino.frontend.pytorch.ts_decoder \
    openvino.frontend.pytorch.fx_decoder openvino.frontend.pytorch.patch_model \
    openvino.tools.ovc.moc_frontend.offline_transformations openvino._offline_transformations
