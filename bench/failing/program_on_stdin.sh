#!/bin/bash
# Passes Python a program on stdin.
python - <<'EOF'
import json

json.loads("")
EOF
