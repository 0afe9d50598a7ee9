"""A rank's numbers, from the variables of mpirun, torchrun or SageMaker's drivers."""

from collections.abc import Mapping
from dataclasses import dataclass

from berth.contract.errors import JobError

MASTER_PORT = 29500


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's four numbers and, if known, its host's name. Without a launcher it is the only rank."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    host: str = ""

    @classmethod
    def from_mpirun(cls, environ: Mapping[str, str]) -> "Rank | None":
        """From mpirun's variables; None without mpirun."""
        names = ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")
        values = [environ.get(f"OMPI_COMM_WORLD_{name}") for name in names]
        if any(value is None for value in values):
            return None
        rank, local_rank, world_size, local_world_size = (int(value) for value in values if value is not None)
        return cls(rank, local_rank, world_size, local_world_size)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Rank":
        """From RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE. Raises JobError if they contradict each other."""
        names = {"rank": "RANK", "local_rank": "LOCAL_RANK", "world_size": "WORLD_SIZE"}
        given = {field: int(environ[name]) for field, name in names.items() if environ.get(name)}
        world_size = given.get("world_size", 1)
        local = int(environ.get("LOCAL_WORLD_SIZE") or world_size)
        rank = cls(**given, local_world_size=local, host=environ.get("SM_CURRENT_HOST", ""))
        if not 0 <= rank.rank < rank.world_size or (rank.world_size > 1 and "rank" not in given):
            raise JobError(
                f"RANK {environ.get('RANK')} and WORLD_SIZE {environ.get('WORLD_SIZE')} don't go together: "
                "start run_qa through the image's train command, or set both."
            )
        return rank

    @property
    def leads(self) -> bool:
        """Whether this is the rank that logs and writes files."""
        return self.rank == 0

    @property
    def hosts(self) -> int:
        """The number of hosts; each has the same number of ranks."""
        return self.world_size // self.local_world_size

    def variables(self) -> dict[str, str]:
        """The variables that torch and the user's script read."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
        }
