"""The files beside jest's code: without a configuration jest runs nothing, and Babel reads neither types nor `import`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sandlot_gateway.core.bad_json import NOT_JSON

# `.cjs`, since `"type": "module"` of a request's package.json would make a `.js` another kind of module.
_CONFIGURATION = "babel.config.cjs"
_PRESETS = b"""const installed = (name) => {
  try {
    return [require.resolve(name)];
  } catch {
    return [];
  }
};
const node = { targets: { node: "current" } };
module.exports = {
  presets: [
    ...installed("@babel/preset-env").map((preset) => [preset, node]),
    ...installed("@babel/preset-typescript"),
  ],
};
"""


class _Package(msgspec.Struct):
    babel: msgspec.Raw = msgspec.Raw()


def configuration(given: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return names and contents of the files to write; `given` are those of the request in the same directory.

    Babel refuses to run with two configurations of its own, so the presets are there only if the request has none.
    """
    added: dict[str, bytes] = {}
    if "package.json" not in given:
        added["package.json"] = b"{}"
    if not any(name.startswith(("babel.config.", ".babelrc")) for name in given) and not _has_babel(
        given.get("package.json", b"{}")
    ):
        added[_CONFIGURATION] = _PRESETS
    return added


def _has_babel(package: bytes) -> bool:
    try:
        return bool(bytes(msgspec.json.decode(package, type=_Package).babel))
    except NOT_JSON:
        return False  # Node says what is wrong with it
