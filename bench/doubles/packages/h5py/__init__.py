"""A double of h5py, for a kind of data that is not used."""
