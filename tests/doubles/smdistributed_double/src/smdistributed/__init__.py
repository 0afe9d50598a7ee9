"""A double of SageMaker's library of this name, for tests on machines without EFA and GPUs."""
