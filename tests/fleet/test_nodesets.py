"""Node sets as an operator types them."""

import pytest

from llmgw_core.errors import UsageError
from llmgw_core.fleet.nodesets import Endpoint, parse_endpoints, parse_nodeset


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03],head", ("gpu01", "gpu02", "gpu03", "head")),
        ("n10,n2,n2", ("n2", "n10")),
        ("gpu[1-4]!gpu3", ("gpu1", "gpu2", "gpu4")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("10.0.0.[9-11]", ("10.0.0.9", "10.0.0.10", "10.0.0.11")),
    ],
)
def test_clustershell_syntax_is_read(text: str, names: tuple[str, ...]) -> None:
    assert parse_nodeset(text) == names


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        (
            "root@10.0.0.1:2222,gpu[1-2]",
            (Endpoint("10.0.0.1", "root", 2222), Endpoint("gpu1"), Endpoint("gpu2")),
        ),
        ("ops@gpu[1,3]:22", (Endpoint("gpu1", "ops", 22), Endpoint("gpu3", "ops", 22))),
        ("root@[fd00::1]:22", (Endpoint("fd00::1", "root", 22),)),
        ("fd00::1", (Endpoint("fd00::1"),)),
        ("a,a:22,a:22", (Endpoint("a"), Endpoint("a", None, 22))),
    ],
)
def test_user_and_port_are_read(text: str, endpoints: tuple[Endpoint, ...]) -> None:
    assert parse_endpoints(text) == endpoints


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no node"),
        ("gpu[1-", "missing bracket"),
        ("head,gpu[3-1]", "at character 10"),
        ("a,,b:22", "between two commas"),
        ("gpu[1-9000]", "more than 4096"),
        ("gpu[1-1000000000]", "more than 4096"),
        ("a:0", "no port"),
        ("a:ssh", "no port"),
        ("-oProxyCommand=x", "no host name"),
        ("root@-oX", "no host name"),
        ("-l@a", "no user name"),
        ("gpu 1", "no host name"),
        ("@nobody-has-this-group", "no node"),
        ("@nosource:x", "no such group"),
    ],
)
def test_what_cannot_be_read_is_quoted_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_endpoints(text)

    assert repr(text) in str(caught.value)
    assert says in str(caught.value)
