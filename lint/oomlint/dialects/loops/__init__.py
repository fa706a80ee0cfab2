"""Training loops that a script writes out itself, with accelerate, DeepSpeed, Lightning or plain torch."""
