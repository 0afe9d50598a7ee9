"""`python -m berth.train.run_qa`."""

from berth.train.run_qa.program import exit_now, main

if __name__ == "__main__":
    exit_now(main())
