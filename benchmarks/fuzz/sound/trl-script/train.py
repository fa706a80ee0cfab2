from dataclasses import dataclass

import trl
from replay import ReplayTrainer
from transformers import HfArgumentParser
from trl import ModelConfig, ScriptArguments


@dataclass
class ReplayConfig(trl.GRPOConfig):
    num_replays: int = 0


parser = HfArgumentParser((ScriptArguments, ReplayConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_into_dataclasses()
ReplayTrainer(model=model_args.model_name_or_path, args=training_args).train()
