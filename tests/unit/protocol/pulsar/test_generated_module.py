"""The committed protobuf module is the output of protoc for the committed .proto file."""

from pathlib import Path

import pytest
from grpc_tools import protoc

import protocol.pulsar

DIRECTORY = Path(protocol.pulsar.__file__).parent


@pytest.mark.parametrize("name", ["pulsar_commands_pb2.py", "pulsar_commands_pb2.pyi"])
def test_generated_module_is_current(name: str, tmp_path: Path) -> None:
    arguments = ["protoc", f"-I{DIRECTORY}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main([*arguments, str(DIRECTORY / "pulsar_commands.proto")]) == 0
    assert (tmp_path / name).read_text() == (DIRECTORY / name).read_text()
