"""What an estimator of SageMaker is told of the machines that it trains on.

Read from aws/sagemaker-python-sdk 2.245 ``sagemaker/estimator.py`` EstimatorBase, ``sagemaker/huggingface/estimator.py``
HuggingFace, and 3.0 ``sagemaker/train/configs.py`` Compute.
"""

from __future__ import annotations

from oomlint.dialects.kinds import POSITIVE, TEXT
from oomlint.dialects.machine.fields import sagemaker
from oomlint.dialects.table import Row, Table

ESTIMATOR = Table(
    name="estimator",
    rows=(
        Row("instance_type", sagemaker.instance, TEXT),
        Row("instance_count", sagemaker.nodes, POSITIVE),
        Row("transformers_version", sagemaker.transformers, TEXT),
        Row("pytorch_version", sagemaker.torch, TEXT),
    ),
    known_prefixes=("",),
    section="scheduler",
)
