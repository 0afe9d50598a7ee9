"""Prints run_qa's hyperparameters with the installed transformers, as one line of JSON:
`python -P -m berth.train.run_qa.schema`.

The machine that starts the container reads it with berth.contract.schema. The defaults are run_qa's (some differ from
transformers') for a job on GPUs with the channels train and validation and a checkpoint folder.
"""

from dataclasses import replace

from transformers import TrainingArguments

from berth.contract.hyperparameters import Option, default_text
from berth.contract.schema import write_schema
from berth.train.run_qa.device import RankEnvironment
from berth.train.run_qa.recipe import Paths, complete, options

MEANINGS = {
    "model_name_or_path": "The model to start from: a folder, such as /opt/ml/input/data/model, or a name of the hub. "
    "Without it, the channel model.",
    "config_name": "The config, if it is not the model's own.",
    "tokenizer_name": "The tokenizer, if it is not the model's own.",
    "cache_dir": "Where downloads of the hub are kept.",
    "model_revision": "Branch, tag or commit of the model on the hub.",
    "token": "Token for models and data sets of the hub that are not public.",
    "trust_remote_code": "Run the code that a model of the hub contains.",
    "hidden_dropout_prob": "Dropout of hidden layers, 0 to below 1, instead of the model's.",
    "attention_probs_dropout_prob": "Dropout of attention, 0 to below 1, instead of the model's.",
    "dataset_name": "A data set of the hub, such as squad, for splits without a channel or a file.",
    "dataset_config_name": "The data set's configuration.",
    "train_file": "The file to train on, in the channel train or by its path.",
    "validation_file": "The file to evaluate on.",
    "test_file": "The file to predict answers for.",
    "max_train_samples": "Train on this many questions at most.",
    "max_eval_samples": "Evaluate on this many questions at most.",
    "max_predict_samples": "Predict answers to this many questions at most.",
    "max_seq_length": "Tokens of a window: question and a part of the context.",
    "doc_stride": "Tokens by which the windows of a long context overlap.",
    "pad_to_max_length": "Pad every window to max_seq_length; slower than batches of similar lengths.",
    "version_2_with_negative": "Some questions have no answer, as in SQuAD 2.0.",
    "null_score_diff_threshold": "No answer is predicted if its score is above the best answer's by more than this.",
    "n_best_size": "Candidates that are considered for each question.",
    "max_answer_length": "Tokens of the longest answer that is predicted.",
    "overwrite_output_dir": "Start from the beginning although the checkpoint folder has checkpoints.",
    "save_minutes": "Minutes between checkpoints; 0: none by time. Default: 10, unless save_strategy or "
    "save_steps is set.",
    "log_seconds": "Seconds between lines with the loss; 0 for a line at each step.",
    "logging_dir": "Where events for TensorBoard go, instead of /opt/ml/output/tensorboard.",
    "export_openvino": "Write an OpenVINO graph into the model, which a server on a CPU loads.",
    "export_int8": "Write an int8 graph, too, and measure its loss of F1 on the validation data.",
    "int8_max_f1_loss": "F1 that the int8 graph may lose, in percent points.",
    "int8_few_questions": "Measure the int8 graph on fewer than 500 questions, too.",
    "do_train": "Train. Without it: if there is a channel train, train_file or dataset_name.",
    "do_eval": "Evaluate. Without it: if there is a channel validation or test, validation_file or dataset_name.",
    "do_predict": "Write answers to the questions of the channel test, or of test_file.",
    "output_dir": "The checkpoint folder. The model goes to /opt/ml/model.",
    "resume_from_checkpoint": "A checkpoint to start from, or false. Without it the newest one in the checkpoint "
    "folder.",
}
"""Descriptions of the recipe's own hyperparameters, and of those of transformers that differ in run_qa."""


def described() -> dict[str, Option]:
    """Every hyperparameter with its default and its meaning."""
    known = options(TrainingArguments)
    for name, meaning in MEANINGS.items():
        known[name] = replace(known[name], meaning=meaning)
    env = RankEnvironment(
        cuda=True,
        backend="nccl",
        channels=frozenset({"train", "validation"}),
        keeps_checkpoints=True,
        reporters=frozenset({"tensorboard"}),
    )
    for name, value in complete({}, Paths(), env).training.items():
        if name in known:
            known[name] = replace(known[name], default=default_text(value))
    return known


if __name__ == "__main__":
    print(write_schema(described()))
