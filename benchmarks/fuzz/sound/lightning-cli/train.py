from lightning.pytorch.cli import LightningCLI
if __name__ == "__main__":
    LightningCLI(subclass_mode_model=True, subclass_mode_data=True)
