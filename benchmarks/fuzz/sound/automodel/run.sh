automodel train.yaml --nproc-per-node 8 --step_scheduler.local_batch_size 2
