"""Programs that fail as users' programs do; nothing imports them. `cases` has the expected failure reasons."""
