"""A double of vit_pytorch: of it, the vision transformer that is given its layers."""
