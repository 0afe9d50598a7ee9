"""A double of torchnet, with SplitDataset only."""
