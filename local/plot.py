"""training.png: the loss by step, and F1 and exact match where they were measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_plot(history: Sequence[Mapping[str, float]], path: Path, title: str) -> None:
    """Draws a run's history: items {step, loss} and {step, f1, exact_match}; scores are percent."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # a second to import, and no display is needed
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    left = figure.subplots()
    losses = [item for item in history if "loss" in item]
    left.plot([item["step"] for item in losses], [item["loss"] for item in losses], color="tab:blue", label="loss")
    left.set(xlabel="step", ylabel="training loss", title=title)
    left.set_ylim(bottom=0)
    right = left.twinx()
    scores = [item for item in history if "f1" in item]
    for name, label, style in (("f1", "F1", "o--"), ("exact_match", "exact match", "s--")):
        colour = "tab:orange" if name == "f1" else "tab:green"
        right.plot([item["step"] for item in scores], [item[name] for item in scores], style, color=colour, label=label)
        for item in scores:
            right.annotate(
                f"{item[name]:.1f}", (item["step"], item[name]), xytext=(-8, 6), textcoords="offset points", ha="right"
            )
    right.set(ylabel="held-out F1 and exact match, %", ylim=(0, 100))
    lines = [*left.get_lines(), *right.get_lines()]
    figure.legend(lines, [str(line.get_label()) for line in lines], loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)
