#!/bin/sh
# Layer openvino: OpenVINO's runtime for CPUs, its converter of PyTorch models, and numpy, which its import needs. Empty for
# images that do not use it.
set -eu
# shellcheck source=docker/layers/common.sh
. /tmp/layer/common.sh

if [ "$OPENVINO" = none ]; then
    exit 0
fi
install_locked
sh /tmp/layer/prune.sh

site=$(echo /opt/berth/lib/python3*/site-packages)
# Its telemetry, which no lock has, sends usage figures at each import and conversion. Remove the requirement, or `pip
# install` of a package that requires openvino would install it in a job.
sed -i '/^Requires-Dist: openvino-telemetry\b/d' "$site"/openvino-*.dist-info/METADATA
# Keep the libraries that read, convert, compile and run a model on a CPU. Remove the plugins for Intel's GPUs (with a table
# of their kernels) and NPUs, for choosing devices and batching, and the C API. TBB needs tbbbind, and that needs hwloc, to
# find the NUMA nodes of a large host.
find "$site/openvino/libs" -type f ! -name 'libopenvino.so.*' ! -name libopenvino_intel_cpu_plugin.so \
    ! -name 'libopenvino_ir_frontend.so.*' ! -name 'libopenvino_pytorch_frontend.so.*' \
    ! -name 'libtbb.so.*' ! -name 'libtbbbind_*.so.*' ! -name 'libtbbmalloc.so.*' ! -name 'libhwloc.so.*' -delete
# Remove readers of other frameworks' files, headers, and the commands for conversion and benchmarks.
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
# By default, a processor with bfloat16 would use it.
compiled = openvino.Core().compile_model("/tmp/graph.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
assert torch.allclose(torch.from_numpy(compiled(tokens.numpy())[0]), model(tokens), atol=1e-4), "OpenVINO's result differs from torch's"
PY
/opt/berth/bin/python /tmp/layer/bytecode.py openvino openvino.frontend.pytorch.ts_decoder \
    openvino.frontend.pytorch.fx_decoder openvino.frontend.pytorch.patch_model \
    openvino.tools.ovc.moc_frontend.offline_transformations openvino._offline_transformations
