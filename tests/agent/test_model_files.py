"""Reading a model's files: whole, torn, hostile, in a directory and in the hub's cache."""

import json
import os
import shutil
from pathlib import Path

import pytest

from llmgw_core.agent import model_files
from llmgw_core.agent.model_files import find_model, hub_cache, read_model
from tests.support.models import LLAMA, write_model, write_shard


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m", LLAMA, said=1_000_000)


def test_whole_model_says_what_it_weighs_and_how_it_is_shaped(model: Path) -> None:
    facts = read_model(model)

    assert facts.weight_bytes == 1_000_000
    assert (facts.weight_files, facts.missing_files, facts.torn_files) == (2, (), ())
    assert facts.unread == ()
    assert facts.shape is not None
    assert facts.shape.layers == 80


def test_without_the_index_s_word_the_headers_count(tmp_path: Path) -> None:
    assert read_model(write_model(tmp_path / "m", LLAMA, shards=3)).weight_bytes == 300


def test_one_file_needs_no_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    write_shard(tmp_path / "model.safetensors", 77)
    write_shard(tmp_path / "consolidated.safetensors", 99)

    facts = read_model(tmp_path)

    assert (facts.weight_bytes, facts.weight_files) == (77, 1)


def test_pickled_weights_are_taken_at_the_size_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "pytorch_model.bin").write_bytes(bytes(55))
    (tmp_path / "training_args.bin").write_bytes(bytes(5))

    assert read_model(tmp_path).weight_bytes == 55


def test_model_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(123))

    facts = read_model(path)

    assert (facts.weight_bytes, facts.weight_files, facts.shape) == (123, 1, None)


def test_shard_that_the_index_names_and_nobody_has_is_missing(model: Path) -> None:
    (model / "model-00002-of-00002.safetensors").unlink()

    assert read_model(model).missing_files == ("model-00002-of-00002.safetensors",)


def test_link_to_nothing_is_missing(model: Path) -> None:
    shard = model / "model-00002-of-00002.safetensors"
    shard.unlink()
    shard.symlink_to(model / "blobs" / "gone")

    assert read_model(model).missing_files == (shard.name,)


@pytest.mark.parametrize("cut", [1, 100, 150, 250])
def test_shard_that_is_cut_is_torn_wherever_it_is_cut(model: Path, cut: int) -> None:
    shard = model / "model-00001-of-00002.safetensors"
    write_shard(shard, 100, cut=min(cut, shard.stat().st_size))

    assert read_model(model).torn_files == (shard.name,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ('{"hidden_size": 1', "no JSON"),
        ("[1]", "no JSON object"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
    ],
    ids=["empty", "cut", "list", "deep-list", "deep-object"],
)
def test_config_that_is_torn_or_hostile_is_told_and_the_rest_is_read(
    model: Path, text: str, why: str
) -> None:
    (model / "config.json").write_text(text)

    facts = read_model(model)

    assert facts.shape is None
    assert len(facts.unread) == 1
    assert facts.unread[0].startswith("config.json: ")
    assert why in facts.unread[0]
    assert facts.weight_bytes == 1_000_000


def test_config_that_is_no_utf8_is_told(model: Path) -> None:
    (model / "config.json").write_bytes(b'{"a": "\xff"}')

    assert read_model(model).unread[0].startswith("config.json: it is no JSON")


def test_config_longer_than_any_is_not_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "CONFIG_BYTES", 1 << 20)
    (model / "config.json").write_text(json.dumps({"x": "a" * (1 << 20)}))

    assert read_model(model).unread == ("config.json: it is longer than 1 MiB",)


def test_number_of_a_million_digits_is_no_number(model: Path) -> None:
    (model / "config.json").write_text('{"num_hidden_layers": ' + "9" * 1_000_000 + "}")

    shape = read_model(model).shape

    assert shape is not None
    assert shape.layers is None


def test_fifo_in_place_of_a_file_keeps_nobody_waiting(model: Path) -> None:
    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")

    assert read_model(model).unread == ("config.json: it is no regular file",)


def test_config_that_is_not_there_is_told(model: Path) -> None:
    (model / "config.json").unlink()

    assert read_model(model).unread == ("config.json: there is none",)


def test_index_does_not_lead_out_of_the_directory(model: Path) -> None:
    names = {"a": "/etc/passwd", "b": "../x", "c": "model-00001-of-00002.safetensors", "d": 5}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    facts = read_model(model)

    assert (facts.weight_files, facts.missing_files, facts.weight_bytes) == (1, (), 100)


def test_fingerprint_is_the_same_for_a_copy_and_another_for_other_files(
    model: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    same = read_model(copy).fingerprint
    write_shard(copy / "model-00001-of-00002.safetensors", 101)

    assert same == read_model(model).fingerprint
    assert same != read_model(copy).fingerprint


def cached(tmp_path: Path, commit: str = "c0ffee") -> Path:
    """A hub's cache that holds org/name at one commit, of branch main."""
    hub = tmp_path / "hub"
    root = hub / "models--org--name"
    write_model(root / "snapshots" / commit, LLAMA)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit)
    return hub


@pytest.mark.parametrize("revision", ["", "main", "c0ffee"])
def test_model_of_the_hub_is_found_by_branch_or_commit(tmp_path: Path, revision: str) -> None:
    hub = cached(tmp_path)

    path, commit, where = find_model("org/name", "/", revision, [tmp_path / "none", hub])

    assert path == hub / "models--org--name" / "snapshots" / "c0ffee"
    assert (commit, where) == ("c0ffee", str(hub))


@pytest.mark.parametrize("model", ["org/other", "/org/name", "s3://org/name", "../org/name", "x"])
def test_model_that_is_not_there_is_not_found(tmp_path: Path, model: str) -> None:
    assert find_model(model, "/nowhere", "", [cached(tmp_path)])[0] is None


@pytest.mark.parametrize("revision", ["dev", "../../..", ".", "..", "a/b"])
def test_revision_that_is_not_there_is_not_found(tmp_path: Path, revision: str) -> None:
    assert find_model("org/name", "/nowhere", revision, [cached(tmp_path)])[0] is None


def test_directory_of_that_name_comes_before_the_hub(tmp_path: Path) -> None:
    hub = cached(tmp_path)
    write_model(tmp_path / "org" / "name", LLAMA)

    assert find_model("org/name", str(tmp_path), "", [hub])[0] == tmp_path / "org" / "name"


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "HOME": "/h"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/huggingface/hub"),
        ({"HOME": "/h"}, "/h/.cache/huggingface/hub"),
        ({"HF_HUB_CACHE": "", "HF_HOME": "~/hf", "HOME": "/h"}, "/h/hf/hub"),
        ({"HF_HUB_CACHE": "$SCRATCH/${USER}/$NONE", "SCRATCH": "/s", "USER": "u"}, "/s/u/$NONE"),
    ],
)
def test_hub_s_cache_is_where_the_hub_s_library_has_it(env: dict[str, str], path: str) -> None:
    assert hub_cache(env) == Path(path)
