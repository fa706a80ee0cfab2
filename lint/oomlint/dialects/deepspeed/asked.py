"""What those who hand a DeepSpeed config on ask of it."""

from __future__ import annotations

from oomlint.dialects.base import Demand

# accelerate 0.12.0 utils/dataclasses.py:292 to 1.8.0 :1206, DeepSpeedPlugin.__post_init__: "Please specify the ZeRO
# optimization config in the DeepSpeed config."
BY_ACCELERATE = {"deepspeed": Demand("zero_optimization")}
# transformers 4.29.2 trainer.py hands the file to DeepSpeed itself; 4.30.0 training_args.py makes the plug-in of it.
BY_TRAINER = {"deepspeed": Demand("zero_optimization", ("transformers", (4, 30)))}
