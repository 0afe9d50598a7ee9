"""Gets as many long hyperparameters as SageMaker accepts, more than Linux allows in one variable."""

import json
import os
import sys

names = json.load(open("/opt/ml/input/config/hyperparameters.json"))
print(len(sys.argv), "arguments;", len(names), "hyperparameters;", "SM_HPS" in os.environ, "SM_HP_P1" in os.environ)
