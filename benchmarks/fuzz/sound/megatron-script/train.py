from megatron.training import pretrain

pretrain(None, None, None)
