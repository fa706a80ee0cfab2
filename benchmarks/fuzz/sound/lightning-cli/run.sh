python train.py fit --config a.yaml --trainer.devices=2
