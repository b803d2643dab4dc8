"""The cause of a failure is the deepest one in the log, not the last line."""

import time

import pytest

from llmgw_core.agent.diagnosis import diagnose
from llmgw_core.agent.diagnosis_rules import RULES
from llmgw_core.domain.engine import Diagnosis, EngineExit

DIED = EngineExit(code=1, reason="exited")
WRAPPED = """\
(Worker_TP1 pid=13) ERROR 12-01 02:30:45 [x.py:1] Traceback (most recent call last):
(Worker_TP1 pid=13) ERROR 12-01 02:30:45 [x.py:1] {cause}
(EngineCore pid=12) ERROR 12-01 02:30:46 [core.py:1510] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
Process EngineCore:
Traceback (most recent call last):
{cause}
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{'EngineCore': 1}}
/usr/lib/python3.12/multiprocessing/resource_tracker.py:279: UserWarning: resource_tracker: There appear to be 1 leaked
"""


def wrapped(cause: str, ended: EngineExit = DIED) -> Diagnosis:
    return diagnose(WRAPPED.format(cause=cause), ended, was_ready=False)


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "cuda-oom"),
        ("ValueError: No available memory for the cache blocks. Try more", "kv-cache-none"),
        ("RuntimeError: Cannot find any model weights with `/m`", "weights-missing"),
        ("OSError: [Errno 98] Address already in use", "port-taken"),
        ("vllm: error: unrecognized arguments: --swap-space 4", "flag-unknown"),
        ("RuntimeError: NCCL error: unhandled system error", "nccl-system"),
        ("OSError: /m does not appear to have a file named config.json", "model-incomplete"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -4)", "illegal-instruction"),
        ("PermissionError: [Errno 13] Permission denied: '/root/.cache'", "permission"),
        (
            "ValueError: Total number of attention heads (32) must be divisible by tensor parallel size (3).",
            "heads-not-divide",
        ),
        (
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. Access to model x is restricted",
            "model-gated",
        ),
    ],
)
def test_known_cause_is_found_under_its_wrappers(cause: str, code: str) -> None:
    assert wrapped(cause).code == code


def test_message_is_the_engines_own_words_without_class_and_prefix() -> None:
    found = wrapped(
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of 8.0."
    )

    assert found.message == "Bfloat16 is only supported on GPUs with compute capability of 8.0."


def test_reason_in_a_pydantic_error_is_taken_out_of_it() -> None:
    text = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Unknown quantization method: int3. Must be one of ['awq'] "
        "[type=value_error, input_value=ArgsKwargs((), {'hf_token': 'x'}), input_type=ArgsKwargs]\n"
    )

    found = diagnose(text, DIED, was_ready=False)

    assert found.code == "quantization-unknown"
    assert found.message == "Unknown quantization method: int3. Must be one of ['awq']"


def test_cause_outweighs_the_victims_lines_before_it() -> None:
    text = "RuntimeError: remote process exited or there was a network error\n" + WRAPPED.format(
        cause="torch.OutOfMemoryError: CUDA out of memory."
    )

    assert diagnose(text, DIED, was_ready=False).code == "cuda-oom"


def test_unknown_failure_gives_the_last_error_that_is_no_wrapper() -> None:
    found = wrapped("mylib.StrangeError: the moon is full")

    assert (found.code, found.message) == ("error", "mylib.StrangeError: the moon is full")


@pytest.mark.parametrize(
    "prefix",
    ["(APIServer pid=7) ", "", "\x1b[1;36m(APIServer pid=7)\x1b[0;0m "],
)
def test_what_the_engine_calls_a_warning_did_not_end_it(prefix: str) -> None:
    text = (
        f"{prefix}WARNING 12-01 02:30:45 [system_utils.py:257] Found ulimit of 1024 and failed to automatically "
        "increase with error. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Unknown quantization method: int3. Must be one of ['awq'] [type=value_error, input_value=x]\n"
    )

    assert diagnose(text, DIED, was_ready=False).code == "quantization-unknown"


def test_old_errors_do_not_explain_a_kill() -> None:
    killed = EngineExit(signal=9, reason="killed")

    assert diagnose("ValueError: a bad request", killed, was_ready=True).code == "killed"


def test_empty_log_is_told_by_how_it_ended() -> None:
    killed = diagnose("", EngineExit(signal=9, reason="killed"), was_ready=True)
    oom = diagnose("", EngineExit(signal=9, reason="oom"), was_ready=True)
    quiet = diagnose("", EngineExit(code=0, reason="exited"), was_ready=True)

    assert [killed.code, oom.code, quiet.code] == ["killed", "host-oom", "exited"]
    assert "after it had been ready" in quiet.message


def test_command_that_was_not_executed_is_told_by_the_shim() -> None:
    ended = EngineExit(code=127, reason="exec-failed")

    found = diagnose("", ended, was_ready=False, detail="exec /x: Permission denied")

    assert (found.code, found.message) == ("exec-failed", "exec /x: Permission denied")


def test_long_message_is_cut() -> None:
    assert len(wrapped("ValueError: " + "x" * 5000).message) <= 400


def test_every_rule_says_what_to_do() -> None:
    assert [rule.code for rule in RULES if not rule.hint] == []


@pytest.mark.slow
def test_log_storm_is_read_in_a_moment() -> None:
    storm = "\n".join(f"{number} Error: something failed" for number in range(20_000))
    began = time.monotonic()

    found = diagnose(
        "RuntimeError: Cannot find any model weights with `/m`\n" + storm, DIED, was_ready=False
    )

    assert found.code == "weights-missing"
    assert time.monotonic() - began < 5


def test_engine_of_a_former_boot_is_told_as_such() -> None:
    found = diagnose("ValueError: x", EngineExit(reason="host-rebooted"), was_ready=True)

    assert found.code == "host-rebooted"
