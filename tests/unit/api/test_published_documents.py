"""The published documents are what the code says; make them again with `python -m controller.api.publish docs`."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from controller.api.publish import DOCUMENTS, documents
from controller.model import PlaneConfig, PlaneKind
from controller.spec.check import check
from controller.spec.merge import merge
from controller.spec.parse import parse
from controller.spec.state import Ids, State

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_published_document_is_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == documents()[name]


def test_the_schema_is_one_and_refuses_unknown_keys() -> None:
    schema = json.loads((ROOT / "docs" / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid({"version": 1, "planes": [{"name": "s1", "datapath_id": "0x1"}]})
    assert not validator.is_valid({"version": 1, "plane": []})


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").glob("*/*.yaml")), ids=lambda path: path.name)
def test_every_topology_fits_the_schema(path: Path) -> None:
    schema = json.loads((ROOT / "docs" / "schema.json").read_text())
    jsonschema.validate(YAML(typ="safe", pure=True).load(path), schema)


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").glob("*/*.yaml")), ids=lambda path: path.name)
def test_every_topology_can_be_applied(path: Path) -> None:
    parsed = parse(path.read_text(), path.name)
    files = {name: (path.parent / name).read_text() for _, name, _ in parsed.text_files()}
    names = {router.plane for tenant, _ in parsed.tenants() for router in tenant.routers}
    planes = {name: PlaneConfig(name, PlaneKind.FAKE) for name in names}
    check(*merge(parsed, State(planes), Ids(), files))
