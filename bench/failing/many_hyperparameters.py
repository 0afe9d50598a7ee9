"""Gets as many and as long hyperparameters as SageMaker takes, more than Linux passes in one variable."""

import json
import os
import sys

names = json.load(open("/opt/ml/input/config/hyperparameters.json"))
print(len(sys.argv), "arguments;", len(names), "hyperparameters;", "SM_HPS" in os.environ, "SM_HP_P1" in os.environ)
