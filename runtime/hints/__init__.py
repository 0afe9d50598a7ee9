"""What helps when a user's program fails: one table of hints for both images.

table            the hints in their order; `remedy` and `last_line_remedy` ask them
program          what a hint may look at: the exception, and how the program was started
missing_modules  a module that is not installed
removed_apis     an API that the image's transformers, accelerate, datasets or evaluate does not have
save_strategy    load_best_model_at_end without a matching save strategy
"""
