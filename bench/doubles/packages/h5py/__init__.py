"""A double of h5py; scripts import it for a data format that they do not use here."""
