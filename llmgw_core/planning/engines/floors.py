"""Compute capability × 10 below which an engine refuses a quantization method, by version. Pure data.

Source: `get_min_capability` of each version of vLLM from 0.10.2 to 0.32 and of SGLang from 0.4.6 to 0.5.23. A method that
is not here has no floor that is known. Of compressed-tensors the floor is its scheme's, where there is one.
"""

from types import MappingProxyType
from typing import Mapping, Sequence, Tuple

from llmgw_core.domain.engine import EngineKind
from llmgw_core.planning.versions import Version

Changes = Sequence[Tuple[Version, int]]
_ALWAYS: Version = (0,)
# From 0.14 on Marlin's weight-only kernels run on Turing.
_MARLIN: Changes = ((_ALWAYS, 80), ((0, 14), 75))

FLOORS: Mapping[EngineKind, Mapping[str, Changes]] = MappingProxyType(
    {
        EngineKind.VLLM: {
            "awq": ((_ALWAYS, 75),),
            "auto_awq": ((_ALWAYS, 75),),
            "awq_marlin": _MARLIN,
            "gptq": ((_ALWAYS, 60),),
            "auto_gptq": ((_ALWAYS, 60),),
            "gptq_marlin": (*_MARLIN, ((0, 22), 60)),
            "fp8": _MARLIN,
            "fbgemm_fp8": ((_ALWAYS, 80),),
            "experts_int8": ((_ALWAYS, 80),),
            "compressed-tensors": ((_ALWAYS, 70),),
            "compressed-tensors w8a8-float": _MARLIN,
            "compressed-tensors w8a16-float": _MARLIN,
            "compressed-tensors w8a8-int": ((_ALWAYS, 75),),
            "compressed-tensors w4a16-int": _MARLIN,
            "compressed-tensors w4a8-int": ((_ALWAYS, 90),),
            "compressed-tensors w4a4-float": _MARLIN,
            "modelopt": ((_ALWAYS, 89), ((0, 27), 80)),
            "modelopt_fp4": _MARLIN,
            "mxfp4": ((_ALWAYS, 80),),
            "moe_wna16": ((_ALWAYS, 70),),
            "bitsandbytes": ((_ALWAYS, 70),),
            "gguf": ((_ALWAYS, 60),),
            "torchao": ((_ALWAYS, 75),),
            "fp_quant": ((_ALWAYS, 100),),
            "petit_nvfp4": ((_ALWAYS, 90),),
            "humming": ((_ALWAYS, 75),),
            "int8_per_channel_weight_only": ((_ALWAYS, 75),),
        },
        EngineKind.SGLANG: {
            "awq": ((_ALWAYS, 75), ((0, 5, 4), 80)),
            "awq_marlin": ((_ALWAYS, 80),),
            "gptq": ((_ALWAYS, 60),),
            "gptq_marlin": ((_ALWAYS, 80),),
            "fp8": ((_ALWAYS, 80),),
            "mxfp8": ((_ALWAYS, 100),),
            "compressed-tensors": ((_ALWAYS, 70),),
            "compressed-tensors w8a8-float": ((_ALWAYS, 89),),
            "compressed-tensors w8a16-float": ((_ALWAYS, 80),),
            "compressed-tensors w8a8-int": ((_ALWAYS, 80),),
            "compressed-tensors w4a16-int": ((_ALWAYS, 80),),
            "compressed-tensors w4a4-float": ((_ALWAYS, 100),),
            "modelopt": ((_ALWAYS, 89),),
            "modelopt_fp8": ((_ALWAYS, 89),),
            "modelopt_fp4": ((_ALWAYS, 100), ((0, 5, 16), 80)),
            "mxfp4": ((_ALWAYS, 80),),
            "nvfp4_online": ((_ALWAYS, 100),),
            "w8a8_int8": ((_ALWAYS, 75),),
            "w8a8_fp8": ((_ALWAYS, 89),),
            "w4afp8": ((_ALWAYS, 90),),
            "blockwise_int8": ((_ALWAYS, 80),),
            "qoq": ((_ALWAYS, 80),),
            "moe_wna16": ((_ALWAYS, 70),),
            "bitsandbytes": ((_ALWAYS, 70),),
            "gguf": ((_ALWAYS, 60),),
            "petit_nvfp4": ((_ALWAYS, 90),),
            "quark": ((_ALWAYS, 70),),
        },
    }
)
# Weights or activations in FP8: without FP8 arithmetic they run weight-only, slowly, or not at all.
FP8_METHODS = frozenset(
    {
        "fp8",
        "fp8_per_tensor",
        "fp8_per_block",
        "fp8_per_channel",
        "fbgemm_fp8",
        "w8a8_fp8",
        "modelopt",
        "modelopt_fp8",
        "compressed-tensors w8a8-float",
        "compressed-tensors w8a16-float",
    }
)
