python finetune.py data/own/ THUDM/glm-4-9b-chat lora.yaml
