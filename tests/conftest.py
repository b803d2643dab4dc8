"""Fixtures that tests of several parts share."""

pytest_plugins = ("tests.support.sshd", "tests.support.real_vllm")
