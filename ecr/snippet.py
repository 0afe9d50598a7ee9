"""Python to paste after a push: an estimator or a model with the image, for SageMaker's SDK v2 and v3. Pure text."""

from berth.contract import gpu_hosts
from berth.images.pins import pins, pins_file

V3 = "# SageMaker SDK v3"
V2 = "# SageMaker SDK v2, in maintenance since 2026-07-06, ends on 2027-07-06"

# Names are given because SDK v2 would derive them from the URI: "berth@sha256-2026-…", which AWS rejects.
_TRAIN = """\
{V3}
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import {configs}

trainer = ModelTrainer(
    training_image="{uri}",
    role=role,
    compute=Compute(instance_type="{instance}", instance_count=2),
    {v3}
)
channels = {{"train": "s3://BUCKET/train", "model": "s3://BUCKET/model"}}
trainer.train([InputData(channel_name=name, data_source=source) for name, source in channels.items()])

{V2}
from sagemaker.estimator import Estimator

estimator = Estimator(
    image_uri="{uri}",
    role=role,
    instance_type="{instance}",
    instance_count=2,
    {v2}
    base_job_name="berth",
)
estimator.fit({{"train": "s3://BUCKET/train", "model": "s3://BUCKET/model"}})
"""

_QA = 'hyperparameters={"model_name_or_path": "/opt/ml/input/data/model"},'
# run_qa with its hyperparameters, or a script of the user's own if the profile's software does not support run_qa.
_RUN_QA = {"v2": _QA, "v3": _QA, "configs": "Compute, InputData"}
_OWN_SCRIPT = {
    "v2": 'entry_point="train.py",\n    source_dir="src",',
    "v3": 'source_code=SourceCode(source_dir="src", entry_script="train.py"),',
    "configs": "Compute, InputData, SourceCode",
}

_SERVE = """\
{V3}
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, ProductionVariant

container = ContainerDefinition(
    image="{uri}",
    model_data_url="s3://BUCKET/model.tar.gz",
)
Model.create(model_name="berth", primary_container=container, execution_role_arn=role)
variant = ProductionVariant(
    variant_name="all",
    model_name="berth",
    instance_type="{instance}",
    initial_instance_count=1,{ami}
)
EndpointConfig.create(endpoint_config_name="berth", production_variants=[variant])
Endpoint.create(endpoint_name="berth", endpoint_config_name="berth")
{transform}
{V2}
from sagemaker.model import Model
from sagemaker.utils import name_from_base

model = Model(
    image_uri="{uri}",
    model_data="s3://BUCKET/model.tar.gz",
    role=role,
    name=name_from_base("berth"),
)
model.deploy(
    initial_instance_count=1,
    instance_type="{instance}",
    endpoint_name="berth",{ami}
)
"""


def estimator_snippet(image: str, profile: str, image_uri: str) -> str:
    """Python for the image `train` or `serve`; the user fills in `role` and BUCKET."""
    profiles = pins_file.load().profiles
    known = profiles[profile if profile in profiles else pins.DEFAULT_PROFILE]
    values = {"V2": V2, "V3": V3, "uri": image_uri, "instance": known.instances.get(image) or "ml.INSTANCE"}
    if image == "serve":
        cuda = gpu_hosts.parse(known.cuda["cuda"]) if known.cuda else None
        return _SERVE.format(**values, **_host_lines(cuda, values["instance"]))
    return _TRAIN.format(**values, **(_RUN_QA if known.runs_berth else _OWN_SCRIPT))


def _host_lines(cuda: gpu_hosts.Version | None, instance: str) -> dict[str, str]:
    """The lines that choose a host with the right GPU driver, for an endpoint and a batch transform; empty for CPU."""
    if cuda is None:
        return {"ami": "", "transform": ""}
    driver = f"driver {gpu_hosts.needed_driver(cuda)}"
    ami, transform = gpu_hosts.endpoint_ami(cuda, instance), gpu_hosts.transform_ami(cuda, instance)
    if transform:
        line = f'# A batch transform needs TransformResources(…, transform_ami_version="{transform}").'
    elif not gpu_hosts.can_transform(cuda):
        line = f"# A batch transform has no host with {driver}: use a profile with an older CUDA there."
    else:
        line = ""
    return {
        "ami": f'\n    inference_ami_version="{ami}",  # {driver} or newer' if ami else "",
        "transform": f"\n{line}\n" if line else "",
    }
