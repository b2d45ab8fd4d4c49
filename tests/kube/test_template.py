"""A template in a resource has the fields, the defaults and the key of the contract's."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandlot_contract.template import FIELDS
from sandlot_contract.template import Template as ContractTemplate
from sandlot_kube.template import Template, decode, encode, key

templates = st.builds(
    Template,
    image=st.text(min_size=1, max_size=40),
    cpu=st.floats(0.1, 256) | st.integers(1, 256).map(float),
    memory=st.integers(1, 1 << 42),
    disk=st.integers(1, 1 << 44),
    pids=st.integers(1, 1 << 20),
    gpu_count=st.integers(0, 8),
    gpu_type=st.none() | st.text(max_size=10),
    runtime_class=st.none() | st.sampled_from(["gvisor", "runc"]),
)


@given(templates)
def test_the_key_is_the_contracts(template: Template) -> None:
    fields = {name: getattr(template, name) for name in Template.__struct_fields__}
    assert key(template) == ContractTemplate(**fields).key


def test_the_fields_are_the_contracts_in_its_order() -> None:
    """Their order is the key's."""
    assert Template.__struct_fields__ == FIELDS


@given(templates)
def test_json_and_back_is_the_same_template(template: Template) -> None:
    assert decode(encode(template)) == template
    assert key(decode(encode(template))) == key(template)


def test_the_defaults_are_the_contracts() -> None:
    assert key(Template("python:3.12")) == ContractTemplate("python:3.12").key


def test_the_template_of_a_slot_pool_has_no_image() -> None:
    assert decode('{"cpu": 2}') == Template("", cpu=2)
    assert "image" not in encode(Template(cpu=2))
    assert key(Template(cpu=2.0)) == ContractTemplate("", cpu=2.0).key


def test_a_whole_number_of_cores_has_the_key_of_the_same_float() -> None:
    """The API server stores 2.0 as 2."""
    assert key(decode('{"image": "a", "cpu": 2}')) == ContractTemplate("a", cpu=2.0).key


def test_the_names_are_the_resources() -> None:
    template = Template("a", gpu_count=1, gpu_type="H100", runtime_class="gvisor")
    assert msgspec.json.decode(encode(template)) == {
        "image": "a",
        "gpuCount": 1,
        "gpuType": "H100",
        "runtimeClass": "gvisor",
    }


@pytest.mark.parametrize("text", ['{"image": 1}', '{"image": "a", "memory": "1Gi"}', "", "[]"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(text)
