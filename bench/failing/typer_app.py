"""A typer app, which draws its own traceback in place of Python's."""

import typer

from work import load

app = typer.Typer()


@app.command()
def train(epochs: int = 3) -> None:
    print("epochs:", epochs)
    load(7)


app()
