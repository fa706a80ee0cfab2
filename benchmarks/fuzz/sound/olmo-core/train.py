from olmo_core.data import NumpyDataLoaderConfig, TokenizerConfig
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import AdamWConfig
from olmo_core.script_utils import main
from olmo_core.train.train_module import TransformerTrainModuleConfig

DEFAULT_SEQUENCE_LENGTH = 8192


def build_config(opts, overrides):
    sequence_length = opts.sequence_length or DEFAULT_SEQUENCE_LENGTH
    tokenizer = TokenizerConfig.gpt2()
    model_config = TransformerConfig.llama3_8B(vocab_size=tokenizer.padded_vocab_size(), n_layers=4)
    data_loader = NumpyDataLoaderConfig(global_batch_size=8192 * 512, num_workers=8)
    train_module = TransformerTrainModuleConfig(
        rank_microbatch_size=16384,
        max_sequence_length=sequence_length,
        optim=AdamWConfig(lr=1e-3),
    )
    return model_config, data_loader, train_module


if __name__ == "__main__":
    main(build_config)
