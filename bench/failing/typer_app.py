"""Is a typer app, which prints its own traceback."""

import typer

from work import load

app = typer.Typer()


@app.command()
def train(epochs: int = 3) -> None:
    print("epochs:", epochs)
    load(7)


app()
