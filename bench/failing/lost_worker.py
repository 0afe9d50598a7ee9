"""Has a DataLoader worker that needs more memory than the container has."""

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        kept = [bytearray(32 << 20) for _ in range(400)]
        return len(kept)


if __name__ == "__main__":
    for _ in DataLoader(Rows(), num_workers=1):
        pass
