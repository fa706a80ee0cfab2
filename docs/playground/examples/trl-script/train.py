from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

args = DPOConfig(
    output_dir="dpo",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    max_length=2048,
    gradient_checkpointing=False,
    bf16=True,
)
trainer = DPOTrainer(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    args=args,
    train_dataset=load_dataset("trl-lib/ultrafeedback_binarized", split="train"),
)
trainer.train()
