"""GPU classes and compute capabilities by product name: whole tokens, memory as the driver reports it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.agent.probes.gpu_classes import guess_compute_capability, name_gpu_class, name_model

CASES = [
    ("NVIDIA L40S", 46068, "l40s-45g", "8.9"),
    ("NVIDIA L40S", 49140, "l40s-48g", "8.9"),
    ("NVIDIA L40", 46068, "l40-45g", "8.9"),
    ("NVIDIA L4", 23034, "l4-22g", "8.9"),
    ("Tesla T4", 15109, "t4-15g", "7.5"),
    ("Tesla V100-SXM2-32GB", 32510, "v100-32g", "7.0"),
    ("NVIDIA A10", 23028, "a10-22g", "8.6"),
    ("NVIDIA A10G", 22731, "a10g-22g", "8.6"),
    ("NVIDIA A100-SXM4-40GB", 40960, "a100-40g", "8.0"),
    ("NVIDIA A100 80GB PCIe", 81920, "a100-80g", "8.0"),
    ("NVIDIA RTX A6000", 49140, "rtx-a6000-48g", "8.6"),
    ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx-6000-ada-48g", "8.9"),
    ("Quadro RTX 6000", 24576, "rtx-6000-24g", "7.5"),
    ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090-24g", "8.9"),
    ("GeForce RTX 2080 Ti", 11264, "rtx-2080-ti-11g", "7.5"),
    ("NVIDIA GeForce RTX 5090", 32607, "rtx-5090-32g", "12.0"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000-96g", "12.0"),
    ("NVIDIA H100 80GB HBM3", 81559, "h100-80g", "9.0"),
    ("NVIDIA H100 PCIe", 81559, "h100-80g", "9.0"),
    ("NVIDIA H100 NVL", 95830, "h100-nvl-94g", "9.0"),
    ("NVIDIA H20", 97871, "h20-96g", "9.0"),
    ("NVIDIA GH200 480GB", 97871, "gh200-96g", "9.0"),
    ("NVIDIA GH200 144G HBM3e", 146831, "gh200-143g", "9.0"),
    ("NVIDIA H200", 143771, "h200-140g", "9.0"),
    ("NVIDIA B200", 183359, "b200-179g", "10.0"),
    ("NVIDIA GB200", 189471, "gb200-185g", "10.0"),
    ("NVIDIA B300 SXM6 AC", 275040, "b300-269g", "10.3"),
    ("NVIDIA GB10", None, "gb10-uma", "12.1"),
    ("NVIDIA GB10", 512, "gb10-uma", "12.1"),
    ("Orin (nvgpu)", None, "orin-uma", "8.7"),
    ("GRID V100DX-16Q", 16384, "v100dx-16q-16g", "7.0"),
    ("NVIDIA H100L-2-24C", 24576, "h100l-2-24c-24g", "9.0"),
    ("Tesla PG500-216", 32768, "pg500-216-32g", None),
    ("NVIDIA Z9000 Deluxe", 65536, "z9000-deluxe-64g", None),
]


@pytest.mark.parametrize(("name", "total", "expected", "capability"), CASES)
def test_product_has_its_class_and_capability(
    name: str, total: int | None, expected: str, capability: str | None
) -> None:
    assert name_gpu_class(name, total) == expected
    assert guess_compute_capability(name) == capability


def test_discrete_gpu_without_memory_reading_has_no_class() -> None:
    assert name_gpu_class("NVIDIA H100 80GB HBM3", None) is None


def test_gpu_without_name_has_neither() -> None:
    assert name_gpu_class(None, 81559) is None
    assert guess_compute_capability(None) is None


@given(st.text())
def test_any_name_gives_a_word_that_can_be_typed(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name_model(name))
