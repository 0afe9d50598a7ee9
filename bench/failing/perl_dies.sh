#!/bin/bash
# A step that ends well although it logs an exception, and a step in another language that fails.
set -e
python handled_then_ends_well.py
perl -e 'open(my $rows, "<", "rows.csv") or die "no rows.csv: run split.pl first\n"'
echo trained
