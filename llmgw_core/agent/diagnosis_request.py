"""Failures that lie in what was asked for: the model, and the engine's arguments. Pure.

Sources: vLLM 0.10 to 0.32, SGLang 0.4.6 to 0.5.23, torch, NCCL and Hugging Face Hub as those versions use them.
"""

from typing import Tuple

from llmgw_core.agent.diagnosis_rule import Rule, make_rule

REQUEST: Tuple[Rule, ...] = (
    make_rule(
        0,
        "max-len-over-derived",
        r"User-specified max_model_len .* is greater than the derived",
        "lower max_model_len to what the model was made for",
    ),
    make_rule(
        0,
        "quantization-unknown",
        r"Unknown quantization method|argument --quantization.*invalid choice",
        "use a method this version of the engine knows",
    ),
    make_rule(
        0,
        "quantization-mismatch",
        r"Quantization method specified in the model config",
        "leave the quantization out: the checkpoint says its own",
    ),
    make_rule(
        0,
        "quantization-capability",
        r"quantization method \S+ is not supported for the current GPU",
        "use another quantization, or newer GPUs",
    ),
    make_rule(
        0,
        "fp8-kv-capability",
        r"FP8 KV cache is not supported|requires SM89\+",
        "use a bfloat16 KV cache, or another attention backend",
    ),
    make_rule(
        0,
        "bfloat16-capability",
        r"Bfloat16 is only supported on GPUs",
        "use dtype half on this GPU",
    ),
    make_rule(
        0,
        "world-over-gpus",
        r"World size \(\d+\) is larger than the number of available GPUs",
        "fewer ranks on this node, or more nodes",
    ),
    make_rule(
        0,
        "nodes-not-divide",
        r"must evenly divide the total world size|nnodes.*divi|tp_size must be divisible",
        "make nodes divide tp × pp × dp",
    ),
    make_rule(
        0,
        "heads-not-divide",
        r"attention heads .*must be divisible by tensor parallel",
        "choose a tensor parallel size that divides the model's attention heads",
    ),
    make_rule(
        0,
        "headless-api-count",
        r"cannot be used with --headless",
        "leave front-end arguments out on ranks above 0",
    ),
    make_rule(
        0,
        "flag-unknown",
        r"unrecognized arguments: .+|ambiguous option: .+",
        "leave the argument out, or give its name in this version of the engine",
    ),
    make_rule(
        0,
        "dtype-unknown",
        r"argument --dtype: invalid choice",
        "dtype is the number format; int8 and fp8 are quantizations",
    ),
    make_rule(1, "argument-invalid", r"error: argument .*", "correct the argument"),
    make_rule(
        0,
        "tool-parser-missing",
        r"--enable-auto-tool-choice requires --tool-call-parser",
        "add --tool-call-parser",
    ),
    make_rule(
        0,
        "trust-remote-code",
        r"contains custom code which must be executed|trust_remote_code=True",
        "if you trust the model's author, add --trust-remote-code",
    ),
)

MODEL: Tuple[Rule, ...] = (
    make_rule(
        0,
        "model-path-missing",
        r"Repo id must be in the form|Incorrect path_or_model_id|is not a local folder and is not a valid model identifier",
        "check that the directory is there on every node",
        "the model's path is not on this node",
    ),
    make_rule(
        0,
        "model-incomplete",
        r"does not appear to have a file named|No such file or directory: '[^']*config\.json'",
        "copy the whole model directory: a file the engine needs is missing",
    ),
    make_rule(
        0,
        "model-unauthorized",
        r"401 Client Error|Invalid user token|Invalid credentials in Authorization",
        "pass a valid HF_TOKEN with env_from",
        "the hub refused the token",
    ),
    make_rule(
        1,
        "hub-unreachable",
        r"Max retries exceeded with url|Temporary failure in name resolution|Failed to resolve '",
        "give the node network access or a proxy, or download the model first and set HF_HUB_OFFLINE=1",
        "the hub cannot be reached from this node",
    ),
    make_rule(
        0,
        "model-not-cached",
        r"outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to .* to load|OfflineModeIsEnabled",
        "download the model on every node first, or check HF_HOME",
        "the model is not in this node's cache and cannot be fetched",
    ),
    make_rule(
        0,
        "model-gated",
        r"GatedRepoError|Access to model .* is restricted|You are trying to access a gated repo",
        "ask for access on the model's page, and pass HF_TOKEN with env_from",
    ),
    make_rule(
        0,
        "model-not-found",
        r"RepositoryNotFoundError|Repository Not Found for url|404 Client Error",
        "correct the name; a private repository needs HF_TOKEN in env_from",
    ),
    make_rule(
        0,
        "shard-truncated",
        r"Error while deserializing header|incomplete metadata, file not fully covered|HeaderTooLarge|InvalidHeaderDeserialization",
        "copy the weights again: a file is cut short",
        "a weight file is damaged",
    ),
    make_rule(
        0,
        "weights-missing",
        r"Cannot find any model weights|Weight files referenced in index but missing|No such file.*safetensors",
        "check the directory's *.safetensors files",
    ),
    make_rule(
        0,
        "tokenizer-missing",
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for",
        "copy tokenizer.json and its companions next to the weights",
        "the tokenizer's files are missing",
    ),
    make_rule(
        0,
        "architecture-unknown",
        r"does not recognize this architecture|Model architectures .* are not supported|not supported for now\. Supported arch",
        "upgrade the engine and transformers: the model is newer than they are",
    ),
)
