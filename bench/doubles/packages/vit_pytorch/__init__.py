"""A double of vit_pytorch, with the ViT of `efficient` only."""
