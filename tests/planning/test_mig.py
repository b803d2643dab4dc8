"""A slice of a GPU as a unit that a launch takes."""

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.hardware import Gpu, MigInstance
from llmgw_core.domain.model import LaunchFacts
from tests.support.plans import codes, gpu, node, planned, request

SMALL, LARGE = "h200-mig-1g.18gb", "h200-mig-3g.71gb"
UUIDS = ("MIG-11111111-aaaa", "MIG-22222222-aaaa", "MIG-33333333-aaaa")


def sliced(index: int = 0, *, first_is_free: bool = True) -> Gpu:
    """An H200 in MIG mode with two small slices and a large one."""
    return gpu(
        index,
        "h200-141g",
        available=False,
        memory_total_mib=143771,
        mig_mode="Enabled",
        mig_instances=(
            MigInstance(UUIDS[0], "1g.18gb", SMALL, 0, available=first_is_free),
            MigInstance(UUIDS[1], "1g.18gb", SMALL, 1, available=True),
            MigInstance(UUIDS[2], "3g.71gb", LARGE, 2, available=True),
        ),
    )


def of_version(version: str, engine: str = "vllm") -> dict[str, LaunchFacts]:
    return {"n1": LaunchFacts(packages={engine: version})}


def test_a_slice_is_taken_by_its_class_and_named_by_its_uuid() -> None:
    made = planned(request(gpu_class=LARGE), node("n1", gpu(0), sliced(1)))
    (rank,) = made.ranks

    assert (rank.gpus, rank.gpu_uuids, rank.units) == ((1,), (UUIDS[2],), (UUIDS[2],))
    assert rank.env["CUDA_VISIBLE_DEVICES"] == UUIDS[2]
    assert codes(made) == {}


def test_the_first_free_slice_is_taken() -> None:
    made = planned(request(gpu_class=SMALL), node("n1", sliced(first_is_free=False)))

    assert made.ranks[0].units == (UUIDS[1],)


def test_nobody_gets_a_slice_unasked_and_is_told_of_them() -> None:
    made = planned(request(), node("n1", sliced()))
    (refusal,) = (item for item in made.findings if item.code == "no-free-gpus")

    assert made.ranks == ()
    assert SMALL in refusal.fix
    assert LARGE in refusal.fix


def test_ranks_of_several_slices_are_refused() -> None:
    made = planned(request(gpu_class=SMALL, tensor_parallel=2), node("n1", sliced()))

    assert codes(made)["mig-one-slice"] == "error"


def test_whole_gpus_are_named_by_number_as_before() -> None:
    made = planned(request(gpu_class="h200-141g"), node("n1", gpu(0, "h200-141g"), sliced(1)))

    assert made.ranks[0].units == (0,)
    assert made.ranks[0].env["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_vllm_that_ends_on_a_uuid_is_refused_and_newer_ones_and_sglang_are_not() -> None:
    there = node("n1", sliced())
    asked = request(gpu_class=SMALL)

    assert codes(planned(asked, there, facts=of_version("0.23.0")))["mig-engine"] == "error"
    assert "mig-engine" not in codes(planned(asked, there, facts=of_version("0.24.0")))
    other = request(gpu_class=SMALL, engine=EngineKind.SGLANG)
    assert "mig-engine" not in codes(planned(other, there, facts=of_version("0.5.9", "sglang")))


def test_an_index_of_a_gpu_in_slices_is_refused_as_a_whole() -> None:
    made = planned(request(gpus=(0,)), node("n1", sliced()))

    assert codes(made)["gpu-unfit"] == "error"
