"""A double of torchnet: of it, the data set that is split."""
