"""The options of a push, and their problems. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.ecr.repositories import documents
from berth.ecr.repositories.destination import name_problems, option_problems
from berth.ecr.repositories.names import account_problems, parse_host
from berth.ecr.repositories.repository import WantedRepository, kms_problems
from berth.ecr.repositories.repository_client import RepositoryClient

SAGEMAKER = "sagemaker"
"""Value of --allow-pull for SageMaker itself, instead of an account."""


@dataclass(frozen=True)
class PushOptions:
    """The arguments and options of `build.py push`.

    images: berth's, train or serve or both; named_image: --image, a user's image instead of `images`; host: a registry
    other than ECR; tags: in addition to the build's own; pullers: accounts, or SAGEMAKER; apply: whether to change an
    existing repository's settings; dist: the folder of the record.
    """

    images: tuple[str, ...]
    profile: str
    named_image: str | None
    regions: tuple[str, ...]
    accounts: tuple[str, ...]
    host: str | None
    repository: str | None
    tags: tuple[str, ...]
    pullers: tuple[str, ...]
    kms_key: str | None
    apply: bool
    test: bool
    dry_run: bool
    dist: Path
    as_json: bool

    @property
    def pull_accounts(self) -> tuple[str, ...]:
        return tuple(puller for puller in self.pullers if puller != SAGEMAKER)

    def problems(self, titles: Sequence[str], *, derived: bool) -> list[str]:
        """A sentence for each problem. titles: the images' names in repository names; derived: whether they are the
        user's own, built FROM berth's.
        """
        settings = {
            "--allow-pull": self.pullers,
            "--kms-key": self.kms_key,
            "--apply": self.apply,
        }
        ecr_options = [option for option, given in settings.items() if given]
        return [
            *name_problems(titles, self.host, self.repository, self.tags, derived=derived),
            *option_problems(self.host, self.regions, self.accounts, ecr_options),
            *([] if self.kms_key is None else kms_problems(self.kms_key)),
            *(problem for account in self.pull_accounts for problem in account_problems(account)),
        ]

    def wanted_repository(self, client: RepositoryClient) -> WantedRepository | None:
        """The repository's wanted settings; None if it is not in ECR."""
        registry = parse_host(client.registry.host)
        if registry is None:
            return None
        pull = None
        if self.pullers:
            pull = documents.pull_policy(registry, self.pull_accounts, sagemaker=SAGEMAKER in self.pullers)
        return WantedRepository(
            client.name,
            kms_key=self.kms_key,
            lifecycle=documents.lifecycle_policy(),
            pull=pull,
        )
