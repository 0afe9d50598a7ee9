"""A double of sagemaker_training: of it, the parameters that an estimator's distribution sends."""
