"""What the user asked for of a push, and what is wrong with it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.ecr.repositories import documents
from berth.ecr.repositories.destination import Destination, name_problems, option_problems
from berth.ecr.repositories.names import account_problems
from berth.ecr.repositories.repository import WantedRepository, kms_problems

SAGEMAKER = "sagemaker"
"""Who may pull besides accounts: SageMaker itself."""


@dataclass(frozen=True)
class PushOptions:
    """The arguments and options of `build.py push`.

    images: the kit's own, train and serve; named_image: one of the user's instead, None where `images` are meant; host:
    a registry instead of ECR's; tags: further ones next to each build's own; pullers: accounts, or SAGEMAKER;
    apply: whether an existing repository's settings are changed; dist: where the record is kept.
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
        """A sentence for each thing that is wrong; titles: what the images are called in repositories' names; derived:
        they are the user's own, built FROM the kit's.
        """
        settings = {
            "--allow-pull": self.pullers,
            "--kms-key": self.kms_key,
            "--apply": self.apply,
        }
        of_ecr = [option for option, given in settings.items() if given]
        return [
            *name_problems(titles, self.host, self.repository, self.tags, derived=derived),
            *option_problems(self.host, self.regions, self.accounts, of_ecr),
            *([] if self.kms_key is None else kms_problems(self.kms_key)),
            *(problem for account in self.pull_accounts for problem in account_problems(account)),
        ]

    def wanted_repository(self, destination: Destination) -> WantedRepository | None:
        """What the repository should be like; None where it is not AWS's."""
        if destination.ecr is None:
            return None
        pull = None
        if self.pullers:
            pull = documents.pull_policy(destination.ecr, self.pull_accounts, sagemaker=SAGEMAKER in self.pullers)
        return WantedRepository(
            destination.repository,
            kms_key=self.kms_key,
            lifecycle=documents.lifecycle_policy(),
            pull=pull,
        )
