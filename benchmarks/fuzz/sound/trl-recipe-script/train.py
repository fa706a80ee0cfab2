from dataclasses import dataclass

import trl
from replay import ReplayTrainer
from trl import ModelConfig, ScriptArguments, TrlParser


@dataclass
class ReplayConfig(trl.GRPOConfig):
    num_replays: int = 0


parser = TrlParser((ScriptArguments, ReplayConfig, ModelConfig))
script_args, training_args, model_args = parser.parse_args_and_config()
ReplayTrainer(model=model_args.model_name_or_path, args=training_args).train()
