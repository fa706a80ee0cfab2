import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

class Lit(pl.LightningModule):
    def __init__(self, model_name: str, lr: float = 1e-5):
        super().__init__()
        self.save_hyperparameters()
        self.model = AutoModelForCausalLM.from_pretrained(self.hparams.model_name, torch_dtype=torch.bfloat16)

    def training_step(self, batch, index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

class Data(pl.LightningDataModule):
    def __init__(self, batch_size: int = 4, max_length: int = 512):
        super().__init__()
        self.batch_size = batch_size
        self.max_length = max_length
    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size)
