"""Where a launch goes when the operator leaves it open."""

from llmgw_core.domain.inventory import Node
from tests.support.plans import four, gpu, node, planned, request


def place_of(made: object) -> tuple[str, tuple[int, ...]]:
    rank = made.ranks[0]  # type: ignore[attr-defined]
    return rank.node, rank.gpus


def test_node_with_the_fewest_left_over_is_taken() -> None:
    made = planned(request(tensor_parallel=2), four("n1"), node("n2", gpu(0), gpu(1), gpu(2)))

    assert place_of(made) == ("n2", (0, 1))


def test_lowest_free_indices_are_taken() -> None:
    busy = node("n1", gpu(0, available=False), gpu(1), gpu(2), gpu(3))

    assert place_of(planned(request(tensor_parallel=2), busy)) == ("n1", (1, 2))


def test_equal_nodes_go_in_natural_order() -> None:
    assert place_of(planned(request(), four("n10"), four("n2")))[0] == "n2"


def test_gpus_of_two_classes_are_never_mixed() -> None:
    mixed = node("n1", gpu(0), gpu(1, "l40s-45g"), gpu(2, "l40s-45g"))

    assert place_of(planned(request(tensor_parallel=2), mixed)) == ("n1", (1, 2))


def test_class_asked_for_is_kept_to() -> None:
    mixed = node("n1", gpu(0, "l40s-45g"), gpu(1))

    assert place_of(planned(request(gpu_class="h100-80g"), mixed)) == ("n1", (1,))


def test_node_asked_for_is_kept_to() -> None:
    assert place_of(planned(request(node="n2"), four("n1"), four("n2")))[0] == "n2"


def test_named_gpus_find_the_node_where_they_are_free() -> None:
    busy = node("n1", gpu(0, available=False), gpu(1))

    assert place_of(planned(request(gpus=(0,)), busy, four("n2"))) == ("n2", (0,))


def test_silent_nodes_are_passed_over() -> None:
    assert place_of(planned(request(), Node("n1", reachable=False), four("n2")))[0] == "n2"


def test_cpu_engine_goes_where_no_gpus_are() -> None:
    assert place_of(planned(request(gpu_count=0), four("n1"), node("n2"))) == ("n2", ())


def test_choice_is_explained() -> None:
    told = [item for item in planned(request(), four("n1")).findings if item.code == "placement"]

    assert "n1 GPU 0 (h100-80g)" in told[0].what
    assert "3 of that class stay free" in told[0].what


def test_no_room_says_what_is_free_where() -> None:
    made = planned(request(tensor_parallel=8), four("n1"), node("n2", gpu(0)))

    assert "n1 4 h100-80g, n2 1 h100-80g" in made.findings[0].what


def test_node_without_gpus_is_told_of_the_cpu() -> None:
    assert "--gpu-count 0" in planned(request(), node("n1")).findings[0].fix
