"""Has a data set that fails in a DataLoader's worker."""

from torch.utils.data import DataLoader, Dataset

from work import load


class Rows(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        load(index)
        return index


if __name__ == "__main__":
    for _ in DataLoader(Rows(), num_workers=1):
        pass
