from sagemaker.huggingface import HuggingFace

hyperparameters = {
    "per_device_train_batch_size": 2,
    "gradient_checkpointing": True,
    "bf16": True,
    "fsdp": '"full_shard auto_wrap"',
    "output_dir": "/opt/ml/model",
}
estimator = HuggingFace(
    entry_point="train.py",
    source_dir=".",
    instance_type="ml.p4d.24xlarge",
    instance_count=2,
    transformers_version="4.28",
    hyperparameters=hyperparameters,
    distribution={"torch_distributed": {"enabled": True}},
)
estimator.fit({"training": "s3://bucket/train"})
