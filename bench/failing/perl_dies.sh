#!/bin/bash
# A step that logs an exception and succeeds, then a step in Perl that fails.
set -e
python handled_then_ends_well.py
perl -e 'open(my $rows, "<", "rows.csv") or die "no rows.csv: run split.pl first\n"'
echo trained
