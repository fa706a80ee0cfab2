"""By class: name, suffixes, markers, whether they prove it to be a config, and where it needs one.

Written by ``python -m oomlint.dialects`` from the classes themselves; do not edit.
"""

# fmt: off
SIGNATURES: dict[str, tuple[str, tuple[str, ...], tuple[bytes, ...], bool, tuple[str, ...]]] = {
    'GptNeox': ('gpt-neox', ('.yaml', '.yml', '.json', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'num-layers', b'num_layers', b'deepy.py'), False, ()),
    'DeepSpeed': ('deepspeed', ('.json',), (b'zero_optimization', b'train_micro_batch_size_per_gpu', b'train_batch_size'), True, ()),
    'FsdpConfig': ('fsdp-config', ('.json',), (), True, ()),
    'Accelerate': ('accelerate', ('.yaml', '.yml'), (b'distributed_type',), True, ()),
    'Axolotl': ('axolotl', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'base_model', b'axolotl'), True, ()),
    'Torchtune': ('torchtune', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'torchtune', b'_component_', b'tune run'), True, ()),
    'Torchtitan': ('torchtitan', ('.toml', '.sh', '.bash', '.slurm', '.sbatch', '.job', '.py'), (b'[parallelism]', b'[activation_checkpoint]', b'torchtitan', b'run_train.sh', b'run_llama_train.sh', b'flavor'), False, ('.py',)),
    'LitGpt': ('litgpt', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'litgpt', b'micro_batch_size', b'global_batch_size'), True, ()),
    'LitGptScript': ('litgpt-script', (), (b'litgpt', b'micro_batch_size', b'global_batch_size'), True, ()),
    'LlmFoundry': ('llm-foundry', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'train_loader', b'composer', b'llmfoundry', b'icl_tasks', b'eval_gauntlet'), True, ()),
    'MegatronLm': ('megatron', ('.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'tensor-model-parallel-size', b'pretrain_gpt', b'num-layers', b'num_layers', b'micro-batch-size'), False, ()),
    'MegatronScript': ('megatron-script', (), (), True, ()),
    'MegatronSwift': ('megatron-swift', ('.yaml', '.yml', '.json', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'megatron', b'tensor_model_parallel_size', b'recompute_granularity', b'micro_batch_size'), True, ()),
    'MsSwift': ('ms-swift', ('.yaml', '.yml', '.json', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'swift', b'tuner_type', b'train_type', b'sft_type', b'rlhf_type', b'split_dataset_ratio', b'llm_sft', b'llm_dpo', b'llm_infer', b'sampler_engine', b'load_data_args'), True, ()),
    'MsSwiftFsdp': ('ms-swift-fsdp', ('.json',), (), True, ()),
    'Nemo': ('nemo', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'micro_batch_size', b'tensor_model_parallel_size', b'megatron_'), False, ()),
    'OpenRlhf': ('openrlhf', ('.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'openrlhf', b'micro_train_batch_size'), True, ()),
    'EasyR1': ('easyr1', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'verl.trainer.main', b'micro_batch_size_per_device_for_update', b'rollout_batch_size'), False, ()),
    'Verl': ('verl', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'verl', b'actor_rollout_ref'), True, ()),
    'HfTrainerJson': ('hf-trainer-json', ('.json',), (b'per_device_train_batch_size',), False, ()),
    'HfTrainerYaml': ('hf-trainer-yaml', ('.yaml', '.yml'), (b'per_device_train_batch_size',), False, ()),
    'LlamaFactory': ('llama-factory', ('.yaml', '.yml', '.json', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'model_name_or_path', b'llamafactory-cli', b'lmf train', b'LLaMA-Factory'), True, ()),
    'LlamaFactoryV1': ('llama-factory-v1', ('.yaml', '.yml', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'train_dataset', b'USE_V1'), True, ()),
    'LlamaRecipes': ('llama-recipes', ('.sh', '.bash', '.slurm', '.sbatch', '.job', '.py'), (b'finetuning',), True, ('.py',)),
    'Xtuner': ('xtuner', ('.py', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'xtuner',), False, ('.py',)),
    'Unsloth': ('unsloth', ('.py', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'unsloth',), True, ('.py',)),
    'UnslothCli': ('unsloth-cli', ('.yaml', '.yml', '.json', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'unsloth train', b'load_in_4bit', b'training_type'), False, ('.py',)),
    'Trl': ('trl', ('.yaml', '.yml', '.py', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'model_name_or_path', b'trl', b'--config', b'Trainer'), True, ()),
    'HfTrainer': ('hf-trainer', ('.py', '.sh', '.bash', '.slurm', '.sbatch', '.job'), (b'per_device_train_batch_size', b'output_dir', b'python', b'torchrun', b'launch', b'import train', b'deepspeed '), True, ()),
    'Loops': ('loop', ('.py',), (b'.backward(', b'.fit('), False, ('.py',)),
    'DeepSpeedLaunch': ('deepspeed-launch', ('.sh', '.bash', '.slurm', '.sbatch', '.job', '.py'), (b'deepspeed_config', b'deepspeed.initialize'), False, ('.py',)),
    'Kubernetes': ('kubernetes', ('.yaml', '.yml'), (b'nvidia.com/gpu', b'amd.com/gpu', b'habana.ai/gaudi', b'huawei.com/Ascend910'), False, ()),
    'Compose': ('compose', ('.yaml', '.yml'), (b'driver: nvidia', b'capabilities:', b'runtime: nvidia', b'gpus:', b'shm_size:'), False, ()),
    'SkyPilot': ('skypilot', ('.yaml', '.yml'), (b'accelerators:', b'instance_type:'), False, ()),
    'HostFile': ('hostfile', (), (), True, ()),
    'EnvFile': ('env-file', (), (), True, ()),
}
