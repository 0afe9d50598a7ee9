"""What is told of a model that was loaded over and over."""

from bench.loads import Loaded, growth, render


def test_growth_counts_from_the_tenth_load_on() -> None:
    rounds = [Loaded(1.0, 0.1, 0.2, memory) for memory in (50, 90, *[100] * 8, 100, 105)]
    assert growth(rounds) == 1.05
    assert growth(rounds[:1]) == 1.0


def test_a_page_of_it() -> None:
    rounds = [Loaded(number / 10, 0.1, 0.2, 10**8 + number * 10**6) for number in range(1, 21)]
    text = render("Title", ["how"], 5 * 10**7, rounds)
    assert "| load, s | 1.05 | 2.00 |" in text
    assert "| no load | 50 |\n| 1 | 101 |\n| 10 | 110 |\n| 20 | 120 |" in text
    assert text.endswith("From load 10 to the last: 1.09 times.")
